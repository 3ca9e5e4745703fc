//go:build !race

package script

const raced = false
