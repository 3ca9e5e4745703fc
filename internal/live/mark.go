package live

import "context"

type markKey struct{}

// Marked gives a context that says that a write is one of something that runs in a member,
// for those whose business is only what is stored.
func Marked(ctx context.Context) context.Context { return context.WithValue(ctx, markKey{}, true) }

// IsMarked tells whether a context is Marked.
func IsMarked(ctx context.Context) bool { return ctx.Value(markKey{}) != nil }
