package assess

import (
	"runtime"
	"sync"
	"weak"
)

// A compiled expression takes up to 640 KB, and 140 ms, and a path 50 times its length. So they are shared while something
// uses them: few rules make many combinations.
var (
	sharedRules      sharedValues[Rules]
	sharedConditions sharedValues[condition]
	sharedPaths      sharedValues[compiledPath]
)

// sharedValues holds values by key as long as something else uses them. It is safe for concurrent use.
type sharedValues[T any] struct {
	mu    sync.Mutex
	byKey map[string]weak.Pointer[T]
}

// getOrMake returns the value of a key, and makes it if none is in use. Values are made without the lock.
func (s *sharedValues[T]) getOrMake(key string, make func() *T) *T {
	if v := s.get(key); v != nil {
		return v
	}
	return s.add(key, make())
}

func (s *sharedValues[T]) get(key string) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key].Value()
}

// add returns the value that is held under the key: v, unless another one was added since.
func (s *sharedValues[T]) add(key string, v *T) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.byKey[key].Value(); earlier != nil {
		return earlier
	}
	if s.byKey == nil {
		s.byKey = map[string]weak.Pointer[T]{}
	}
	s.byKey[key] = weak.Make(v)
	runtime.AddCleanup(v, s.dropUnused, key)
	return v
}

// dropUnused drops a key whose value is no longer in use.
func (s *sharedValues[T]) dropUnused(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key].Value() == nil {
		delete(s.byKey, key)
	}
}
