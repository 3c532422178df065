// Command static is the only file of the image fumehood-test/static: it prints a line and ends well.
package main

import "fmt"

func main() { fmt.Println("static: ok") }
