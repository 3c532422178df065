package workspace

const nonblock = 0
