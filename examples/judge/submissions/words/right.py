import collections
import sys

counts = collections.Counter(sys.stdin.buffer.read().lower().split())
for word, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]:
    sys.stdout.buffer.write(b"%d %s\n" % (n, word))
