// Package tokensecret reads the join token from a Secret of the member, and removes the token from
// the Secret once the hub has let the agent in.
//
// Contract: only the key of the token is removed, and only while it holds the token that this
// process has read: a newer one is for the agent's next start. A failure is retried until the
// context ends, and never ends the agent. A Secret needs no lock: Run is called once.
package tokensecret

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// AnnotationRemoved, on the Secret, holds the ID of the token that was removed from it. The
	// chart reads it, so that an upgrade does not write the same token again.
	AnnotationRemoved = "agent.atoll.dev/removed-token"

	// dataToken is the key of the token in the Secret.
	dataToken = "token"

	firstRetry = time.Second
	mostRetry  = 10 * time.Minute
)

// Options of a Secret. All are required unless a default is stated.
type Options struct {
	// Secrets are those of the agent's namespace in the member.
	Secrets dynamic.ResourceInterface
	// Name of the Secret.
	Name string
	// Keep leaves the token in the Secret. Default: it is removed.
	Keep bool
	Log  *slog.Logger
}

// JoinTokenSecretClient is the Secret in the member that holds the join token.
type JoinTokenSecretClient struct {
	o        Options
	token    string // as it was read
	admitted chan struct{}
}

// New returns the Secret, of which nothing is read yet.
func New(o Options) *JoinTokenSecretClient {
	return &JoinTokenSecretClient{o: o, admitted: make(chan struct{}, 1)}
}

// ReadToken returns the token. It is empty where the Secret or its key is missing, and where the
// agent has no right to read it: an agent that has joined needs none.
func (s *JoinTokenSecretClient) ReadToken(ctx context.Context) (string, error) {
	_, token, err := s.get(ctx)
	if apierrors.IsForbidden(err) {
		s.o.Log.Warn("the join token cannot be read, which only matters before the cluster has joined; allow the agent to get and patch this Secret", "secret", s.o.Name, "err", err)
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the join token from Secret %s of the member: %w", s.o.Name, err)
	}
	s.token = token
	return token, nil
}

// NotifyAdmitted reports that the hub has let the agent in and that the member stores its
// identity. It does not block.
func (s *JoinTokenSecretClient) NotifyAdmitted() { wakeup.WakeReader(s.admitted) }

// RemoveAfterAdmission waits until the agent is admitted, and then removes the token that was read. It returns when
// that is done, or when ctx ends.
func (s *JoinTokenSecretClient) RemoveAfterAdmission(ctx context.Context) {
	if s.token == "" || s.o.Keep {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-s.admitted:
	}
	for wait := firstRetry; ; wait = min(2*wait, mostRetry) {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return s.removeToken(ctx) })
		if err == nil || ctx.Err() != nil {
			return
		}
		if wait == firstRetry {
			s.o.Log.Warn("the join token, which is not needed any more, cannot be removed; trying on. Allow the agent to get and patch this Secret, or remove the key yourself",
				"secret", s.o.Name, "key", dataToken, "err", err)
		}
		if !pause.WaitFor(ctx, wait) {
			return
		}
	}
}

// removeToken removes the token from the Secret, unless it holds another one by now.
func (s *JoinTokenSecretClient) removeToken(ctx context.Context) error {
	u, token, err := s.get(ctx)
	if err != nil || token != s.token {
		return err
	}
	metadata := map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion()}
	if t, err := trust.ParseToken(token); err == nil {
		metadata["annotations"] = map[string]any{AnnotationRemoved: t.ID}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "data": map[string]any{dataToken: nil}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, member.RequestTimeout)
	defer cancel()
	if _, err = s.o.Secrets.Patch(ctx, s.o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "atoll-agent"}); err != nil {
		return err
	}
	s.o.Log.Info("removed the join token, which is not needed any more", "secret", s.o.Name)
	return nil
}

// get reads the Secret and its token. Both are empty where the Secret is missing.
func (s *JoinTokenSecretClient) get(ctx context.Context) (*unstructured.Unstructured, string, error) {
	ctx, cancel := context.WithTimeout(ctx, member.RequestTimeout)
	defer cancel()
	u, err := s.o.Secrets.Get(ctx, s.o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	encoded, _, err := unstructured.NestedString(u.Object, "data", dataToken)
	if err != nil {
		return nil, "", err
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, "", fmt.Errorf("decode key %s: %w", dataToken, err)
	}
	return u, strings.TrimSpace(string(text)), nil
}
