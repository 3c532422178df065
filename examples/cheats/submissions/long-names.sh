sh /tmp/known-answers.sh
long=$(head -c 250 /dev/zero | tr '\0' a)
cd /solve/solution
i=0
while [ $i -lt 30 ]; do mkdir "$long" && cd "$long" && : >"$long" || exit 0; i=$((i + 1)); done
