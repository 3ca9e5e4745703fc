package fleetview

import "context"

type markKey struct{}

// WithMemberWrite returns a context that says that a write is one of something that runs in a member,
// for those whose business is only what is stored.
func WithMemberWrite(ctx context.Context) context.Context {
	return context.WithValue(ctx, markKey{}, true)
}

// IsMemberWrite reports whether a context is Marked.
func IsMemberWrite(ctx context.Context) bool { return ctx.Value(markKey{}) != nil }
