package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// confirmTime is the most for refs that the hub itself reads.
const confirmTime = time.Minute

// errUnknownHere is the error of a ref that only a child resolves.
var errUnknownHere = errors.New("the ref is resolved by a child")

// confirmSeen reads the refs of a server in this process when every revision of a request was seen before. The answer is
// that nothing moved; false where a child must read it. A failure of the server is that of a child.
func (f *Fetcher) confirmSeen(ctx context.Context, r Request) (contents []Content, same bool, err error) {
	isNew := func(w Want) bool { return w.SeenCommit == "" }
	if r.Descends != nil || len(r.Wants) == 0 || slices.ContainsFunc(r.Wants, isNew) {
		return nil, false, nil
	}
	of, err := openRepository(r, place{inHub: true, maxText: maxOwnTextBytes, seen: f.checkpoints.findNote(r)})
	if err != nil {
		return nil, false, failureOf(err)
	}
	defer of.closeIdle()
	limited, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	if same, err = confirmWants(limited, of, r.Wants); !same || err != nil {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		return nil, false, err
	}
	f.checkpoints.replaceNote(r, of.readCheckpoint())
	for _, w := range r.Wants {
		contents = append(contents, Content{ID: w.ID, Commit: w.SeenCommit, Digest: w.SeenDigest, Unchanged: true})
	}
	return contents, true, nil
}

// confirmWants reports whether each ref has the revision that was seen. The error is a *Failure.
func confirmWants(ctx context.Context, of repository, wants []Want) (bool, error) {
	isOfChild := func(err error) bool {
		return errors.Is(err, errTextTooLarge) || errors.Is(err, errDecoder) || errors.Is(err, errUnknownHere)
	}
	readRefs := func() error { return of.readRefs(ctx) }
	if err := decodeSafely(readRefs); isOfChild(err) {
		return false, nil
	} else if err != nil {
		return false, failureOf(err)
	}
	resolved := map[string]bool{}
	for _, w := range wants {
		key := w.SeenCommit + " " + w.Ref
		if resolved[key] {
			continue
		}
		var revision string
		err := decodeSafely(func() (err error) {
			revision, err = of.resolveRef(ctx, w.Ref)
			return err
		})
		if err != nil || revision != w.SeenCommit {
			return false, nil
		}
		resolved[key] = true
	}
	return true, nil
}

// errDecoder is a list of refs on which the decoder panics.
var errDecoder = errors.New("the list of refs cannot be decoded")

// decodeSafely decodes an answer of a server in the hub's own process.
func decodeSafely(decode func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v", errDecoder, v)
		}
	}()
	return decode()
}

// Checkpoint is what a child found in an index, by which the hub itself finds out that the index did not change.
type Checkpoint struct {
	// ETag and LastModified are those of the server's answer, and Digest that of its text.
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	Digest       string `json:"digest"`
	// Revisions by ref.
	Revisions map[string]string `json:"revisions,omitempty"`
}

// maxCheckpoints is the most Repositories of which the hub notes the index. Others are read by children.
const maxCheckpoints = 10_000

// maxNotedRefs is the most refs that the note of one index has.
const maxNotedRefs = 2_000

// checkpoints are the notes of indexes, by Repository. The zero value is empty. It is safe for concurrent use.
type checkpoints struct {
	mu    sync.Mutex
	known map[string]Checkpoint
}

// keyOfCheckpoint returns the key of what a request reads, and by which credentials.
func keyOfCheckpoint(r Request) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", r.Type, r.URL, r.Username, r.Password, r.CABundle))
	return hex.EncodeToString(sum[:])
}

// findNote returns the note of an index; an empty one without.
func (c *checkpoints) findNote(r Request) Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[keyOfCheckpoint(r)]
}

// replaceNote replaces the note of an index. Repositories of one index share it, so the refs of others stay while its text is the same.
func (c *checkpoints) replaceNote(r Request, found *Checkpoint) {
	if found == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := keyOfCheckpoint(r)
	before, had := c.known[key]
	if !had && len(c.known) >= maxCheckpoints || c.known == nil {
		c.known = map[string]Checkpoint{}
	}
	note := *found
	if before.Digest == note.Digest && len(before.Revisions)+len(note.Revisions) <= maxNotedRefs {
		all := map[string]string{}
		maps.Copy(all, before.Revisions)
		maps.Copy(all, note.Revisions)
		note.Revisions = all
	}
	c.known[key] = note
}
