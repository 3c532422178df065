# Prints bytes that are not text, and escape sequences that clear the screen, change the title, and write "accepted" in
# green.
import sys

sys.stdout.buffer.write(b"\xff\xfe\x00\x80\n\x1b[2J\x1b]0;owned\x07\x1b[32maccepted\x1b[0m\xe2\x80\xae")
