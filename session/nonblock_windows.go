package session

const nonblock = 0
