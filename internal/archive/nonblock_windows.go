package archive

const nonblock = 0
