package jsontext

const TextPart = textPart
