sh /tmp/known-answers.sh
python3 -I - <<'P'
import os
os.chdir("/solve/solution")
for i in range(4000):
    os.mkdir("d")
    os.chdir("d")
P
