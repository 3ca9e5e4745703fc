//go:build !race

package expr_test

const raced = false
