//go:build !386

package main

var multiplexed map[string]call
