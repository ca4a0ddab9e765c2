// Opens event streams as a page opens them and reads them; says when all are open.
//
// usage: readers.ts URL COUNT

import { get } from "node:http";
import { types } from "../../web/src/live/client.ts";

const [url, count] = process.argv.slice(2);
let open = 0;
for (let index = 0; index < Number(count); index++) {
  const query = new URLSearchParams({ types: types.join(","), rate: "200" });
  get(`${url}/api/v1/events?${query}`, { agent: false }, (response) => {
    if (response.statusCode !== 200) throw new Error(`the stream was answered with ${response.statusCode}`);
    response.resume();
    if (++open === Number(count)) process.send?.("open");
  });
}
