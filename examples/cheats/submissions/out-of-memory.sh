sh /tmp/known-answers.sh
exec python3 -I -c 'x = []
while True: x.append(bytearray(16 << 20))'
