package generate

import (
	"fmt"
	"text/template/parse"
)

// Bounds of the work of one call of Generate.
const (
	// MaxWorkBytes is the most bytes that the texts of all Sources, and the functions in them, read and write together.
	MaxWorkBytes = 128 << 20
	// MaxParts is the most parts of a text that split returns.
	MaxParts = 1024
	// MaxParameters is the most parameters of all combinations of a matrix together. The ones that a combination shares with others count each time.
	MaxParameters = 256 << 10
	// MaxDepth is how deep the fields of a template may be nested.
	MaxDepth = 64
)

var errTooMuchWork = fmt.Errorf("the texts of all Sources together take more than %d MiB of work; use fewer functions, or divide the SourceSet into several", MaxWorkBytes>>20)

// meter counts the bytes that the texts of a template may still read and write. It is for one goroutine.
type meter struct{ left int }

// spendBytes counts bytes of work, and returns an error when there were too many.
func (m *meter) spendBytes(n int) error {
	if m.left -= n; m.left < 0 {
		return errTooMuchWork
	}
	return nil
}

// spendTexts counts the bytes of texts.
func (m *meter) spendTexts(texts ...string) error {
	n := 1
	for _, s := range texts {
		n += len(s)
	}
	return m.spendBytes(n)
}

// meterCompared returns a value that is compared, and counts a text.
func (m *meter) meterCompared(v any) (any, error) {
	s, _ := v.(string)
	return v, m.spendTexts(s)
}

// comparisons are the functions of Go's templates that read texts whole.
var comparisons = []string{"eq", "ge", "gt", "le", "lt", "ne"}

// meterArguments counts the arguments of a comparison, each by a call of its own.
func meterArguments(c *parse.CommandNode) {
	for i, arg := range c.Args[1:] {
		call := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: arg.Position(), Args: []parse.Node{parse.NewIdentifier(comparedFunction).SetPos(arg.Position()), arg}}
		c.Args[i+1] = &parse.PipeNode{NodeType: parse.NodePipe, Pos: arg.Position(), Cmds: []*parse.CommandNode{call}}
	}
}
