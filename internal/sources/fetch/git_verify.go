package fetch

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/signature"
)

// Verification is what must be signed, and by which keys.
type Verification struct {
	Mode signature.Mode `json:"mode"`
	// Keys are files with trusted keys, by their names.
	Keys map[string][]byte `json:"keys,omitempty"`
}

// signedRepository is a repository whose revisions are read before they are verified. All others verify a revision in openRevision.
type signedRepository interface {
	// verifySignature returns the signer of a revision; empty where nothing must be signed.
	verifySignature(ref, revision string, of snapshot) (string, error)
}

// gitVerifier verifies what is signed in a git repository.
type gitVerifier struct {
	*contentVerifier
	// tags are the refs of tags that Sources read.
	tags []string
}

// newGitVerifier reads the trusted keys of a request; nil without any to verify. The hub itself reads none: content comes from
// a child.
func newGitVerifier(r Request, of place) (*gitVerifier, error) {
	v, err := newVerifier(r, of, signature.Mode.IsOfGit)
	if v == nil || err != nil {
		return nil, err
	}
	tags := map[string]bool{}
	for _, w := range r.Wants {
		if strings.HasPrefix(w.Ref, tagPrefix) {
			tags[w.Ref] = true
		}
	}
	return &gitVerifier{v, slices.Sorted(maps.Keys(tags))}, nil
}

const tagPrefix = "refs/tags/"

// refusalOf returns the failure of a refused signature.
func refusalOf(err error) error {
	var refused *signature.Refusal
	if errors.As(err, &refused) {
		return newFailure(refused.Reason, "%s; see verify of the Repository", refused.Message)
	}
	return err
}

// listTagObjects lists the tags of a commit that must be verified, by the hashes of their objects.
func (g *gitRepository) listTagObjects(commit plumbing.Hash) (out []plumbing.Hash) {
	if g.verifier == nil || !g.verifier.mode.NeedsTag() {
		return nil
	}
	for _, ref := range g.verifier.tags {
		object, has := g.refs.References[ref]
		if has && object != commit && g.refs.Peeled[ref] == commit {
			out = append(out, object)
		}
	}
	return out
}

// verifySignature returns the signer of a commit, of its tag, or of both.
func (g *gitRepository) verifySignature(ref, revision string, of snapshot) (string, error) {
	v := g.verifier
	if v == nil {
		return "", nil
	}
	t, is := of.tree.(commitTree)
	if !is {
		return "", newFailure(atoll.ReasonFetchFailed, "the files are of no commit")
	}
	var signers []string
	if v.mode.NeedsTag() {
		signer, err := g.verifyTag(t.store, ref, revision)
		if err != nil {
			return "", refusalOf(err)
		}
		signers = append(signers, string(signer))
	}
	if v.mode.NeedsCommit() {
		raw, err := readObject(t.store, plumbing.CommitObject, plumbing.NewHash(revision))
		if err != nil {
			return "", err
		}
		signer, err := v.keys.VerifyCommit(raw, t.root, time.Now())
		if err != nil {
			return "", refusalOf(err)
		}
		signers = append(signers, string(signer))
	}
	return strings.Join(slices.Compact(signers), ", "), nil
}

// verifyTag returns the signer of the tag that a Source reads.
func (g *gitRepository) verifyTag(store storer.EncodedObjectStorer, ref, revision string) (signature.Signer, error) {
	name, isTag := strings.CutPrefix(ref, tagPrefix)
	if !isTag {
		return "", &signature.Refusal{Reason: atoll.ReasonSignatureMissing, Message: "a tag must be signed, and the Source reads none: state ref.tag"}
	}
	if _, isAnnotated := g.refs.Peeled[ref]; !isAnnotated {
		return "", &signature.Refusal{Reason: atoll.ReasonSignatureMissing, Message: fmt.Sprintf("the tag %s is a lightweight one, which has no signature: make it by git tag -s", name)}
	}
	raw, err := readObject(store, plumbing.TagObject, g.refs.References[ref])
	if err != nil {
		return "", err
	}
	return g.verifier.keys.VerifyTag(raw, name, revision, time.Now())
}

// readObject returns the bytes of an object, after it checked that the hash is theirs. The hash detects collisions of SHA-1.
func readObject(store storer.EncodedObjectStorer, kind plumbing.ObjectType, hash plumbing.Hash) ([]byte, error) {
	o, err := store.EncodedObject(kind, hash)
	if err != nil {
		return nil, newFailure(atoll.ReasonSignatureMissing, "the server does not send the %s that must be signed", kind)
	}
	if o.Size() > signature.MaxObjectBytes {
		return nil, newFailure(atoll.ReasonSignatureInvalid, "the %s that must be signed has more than %d bytes", kind, signature.MaxObjectBytes)
	}
	from, err := o.Reader()
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", kind, err)
	}
	defer from.Close()
	raw, err := io.ReadAll(io.LimitReader(from, signature.MaxObjectBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", kind, err)
	}
	if plumbing.ComputeHash(kind, raw) != hash {
		return nil, newFailure(atoll.ReasonSignatureInvalid, "the %s that must be signed has not its hash", kind)
	}
	return raw, nil
}

// verifyContent returns the signer of a revision before anything of its files is read; empty where nothing must be signed. A
// revision without a signer passes never where something must be.
func (r *contentReader) verifyContent(w Want, revision string, of snapshot) (string, error) {
	signer, err := of.signer, error(nil)
	if signed, can := r.repository.(signedRepository); can {
		signer, err = signed.verifySignature(w.Ref, revision, of)
	}
	if err == nil && signer == "" && r.mustBeSigned {
		return "", newFailure(atoll.ReasonSignatureMissing, "the signature of the content was not verified; see verify of the Repository")
	}
	return signer, err
}
