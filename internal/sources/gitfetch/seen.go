package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

// confirmTime is the most for a list of refs that the hub itself reads.
const confirmTime = time.Minute

// confirmSeen lists the refs of a server in this process when every commit of a request was seen before. The answer is
// that nothing moved; false where a child must read it. A failure of the server is that of a child.
func confirmSeen(ctx context.Context, r Request) (contents []Content, same bool, err error) {
	isNew := func(w Want) bool { return w.SeenCommit == "" }
	if r.Descends != nil || len(r.Wants) == 0 || slices.ContainsFunc(r.Wants, isNew) {
		return nil, false, nil
	}
	s, err := openServer(r, maxOwnTextBytes)
	if err != nil {
		return nil, false, failureOf(err)
	}
	defer s.closeIdle()
	limited, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	refs, err := s.listRefsSafely(limited)
	switch {
	case ctx.Err() != nil:
		return nil, false, ctx.Err()
	case errors.Is(err, errTextTooLarge) || errors.Is(err, errDecoder):
		return nil, false, nil
	case err != nil:
		return nil, false, failureOf(err)
	}
	for _, w := range r.Wants {
		hash, err := resolveRef(refs, w.Ref)
		if err != nil || hash.String() != w.SeenCommit {
			return nil, false, nil
		}
		contents = append(contents, Content{ID: w.ID, Commit: w.SeenCommit, Digest: w.SeenDigest, Unchanged: true})
	}
	return contents, true, nil
}

// errDecoder is a list of refs on which the decoder panics.
var errDecoder = errors.New("the list of refs cannot be decoded")

// listRefsSafely returns the refs that the server offers.
func (s *gitServer) listRefsSafely(ctx context.Context) (refs *packp.AdvRefs, err error) {
	defer func() {
		if v := recover(); v != nil {
			refs, err = nil, fmt.Errorf("%w: %v", errDecoder, v)
		}
	}()
	_, refs, err = s.listRefs(ctx)
	return refs, err
}
