"""A stateless tool: counts the words of a text. One process per call."""
import json
import sys

arguments = json.load(sys.stdin)["arguments"]
words = arguments["text"].split()
if not words:
    # A nonzero exit code means failure; the model sees `message`.
    json.dump({"error": {"kind": "refused", "message": "the text has no words"}}, sys.stdout)
    sys.exit(1)
json.dump({"words": len(words), "longest": max(words, key=len)}, sys.stdout)
