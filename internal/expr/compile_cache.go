package expr

import (
	"fmt"

	"k8s.io/utils/lru"
)

// maxCompiled is how many texts a compileCache keeps.
const maxCompiled = 1024

// compileCache keeps what texts compile to, and why others do not. It is safe for concurrent use.
type compileCache[T any] struct {
	compile func(text string) (*T, error)
	byText  *lru.Cache
}

type compileResult[T any] struct {
	compiled *T
	err      error
}

func newCompileCache[T any](compile func(text string) (*T, error)) compileCache[T] {
	return compileCache[T]{compile, lru.New(maxCompiled)}
}

// getOrCompile returns what a text of at most MaxLength compiles to.
func (c compileCache[T]) getOrCompile(text string) (*T, error) {
	if len(text) > MaxLength {
		return nil, fmt.Errorf("is %d bytes long, and at most %d are read", len(text), MaxLength)
	}
	if v, ok := c.byText.Get(text); ok {
		kept := v.(compileResult[T])
		return kept.compiled, kept.err
	}
	compiled, err := c.compile(text)
	c.byText.Add(text, compileResult[T]{compiled, err})
	return compiled, err
}
