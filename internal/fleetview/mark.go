package fleetview

import "context"

type markKey struct{}

// WithMemberWrite returns a context that marks a write to an object that runs in a member.
func WithMemberWrite(ctx context.Context) context.Context {
	return context.WithValue(ctx, markKey{}, true)
}

// IsMemberWrite reports whether WithMemberWrite has marked the context.
func IsMemberWrite(ctx context.Context) bool { return ctx.Value(markKey{}) != nil }
