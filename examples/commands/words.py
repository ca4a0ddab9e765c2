"""A tool without state: counts the words of a text. One process for each call."""
import json
import sys

arguments = json.load(sys.stdin)["arguments"]
words = arguments["text"].split()
if not words:
    # A code other than 0 says that it failed; `error` says why, to the model too.
    json.dump({"error": {"kind": "refused", "message": "the text has no words"}}, sys.stdout)
    sys.exit(1)
json.dump({"words": len(words), "longest": max(words, key=len)}, sys.stdout)
