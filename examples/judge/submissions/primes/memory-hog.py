# Takes memory until there is none left.
hoard = []
while True:
    hoard.append(bytearray(b"x") * (16 << 20))
