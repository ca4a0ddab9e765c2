// One thread: its conversation, and what belongs to it.

export function ThreadPage({ id }: { id: string }) {
  return (
    <section class="page">
      <h1>{id}</h1>
    </section>
  );
}
