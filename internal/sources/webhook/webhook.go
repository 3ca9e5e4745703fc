// Package webhook receives the requests by which git servers report a push.
//
// Contract: a request is a hint to check one Repository now, and nothing else. No part of its body is parsed or
// kept. It counts only when it proves the token of the Repository, and all refusals are one answer. Requests of one moment
// become one write of the status of the Repository, which each hub of several may make, and by which the leading one
// checks. A Receiver may be used by many goroutines.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery/fairness"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/reconcile"
)

const (
	// pathPrefix precedes NAMESPACE/NAME of a Repository.
	pathPrefix = "/webhooks/"
	// MinTokenBytes is the fewest bytes of a token.
	MinTokenBytes = 16
	// maxBodyBytes is the largest body. GitHub sends at most 25 MB.
	maxBodyBytes = 25 << 20
	// requestTime bounds the time in which a body arrives and an answer leaves.
	requestTime = 30 * time.Second
	// maxRequests is how many requests are served at the same time. One more ends the oldest one of the network with the most.
	maxRequests = 32
	// debounce joins the requests of a moment to one write, at the latest after maxDebounce.
	debounce, maxDebounce = 200 * time.Millisecond, time.Second
	// writeInterval is the least time between two writes for a Repository, by all hubs.
	writeInterval = time.Second
)

// The limits of requests that prove nothing.
var (
	refusalsOfNetwork = pace.Rate{Interval: 6 * time.Second, Burst: 10}
	allRefusals       = pace.PerSecond(20, 60)
)

// Repositories finds Repositories.
type Repositories interface {
	Get(key types.NamespacedName) (*v1alpha1.Repository, bool)
}

// Hub is what requests are checked by, once it is there.
type Hub struct {
	Repositories Repositories
	// Client reads Secrets, and writes statuses.
	Client client.Client
}

// Options of a Receiver. All but Log must be set.
type Options struct {
	// Hub returns the tables and the client; false until they are read.
	Hub     func() (Hub, bool)
	Metrics prometheus.Registerer
	// Log; nil: slog's default.
	Log *slog.Logger
}

// Receiver receives requests. Make it with New.
type Receiver struct {
	options  Options
	refusals *fairness.RequestLimiter
	places   *fairness.ConnectionPlaces
	requests *reconcile.Loop[types.NamespacedName]
	answers  *prometheus.CounterVec
	now      func() time.Time
}

// New returns a Receiver. Its requests are honoured while Run runs.
func New(o Options) *Receiver {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	r := &Receiver{
		options: o, refusals: fairness.NewRequestLimiter(refusalsOfNetwork, allRefusals), places: fairness.NewPlaces(maxRequests),
		answers: metrictable.WebhookRequests.NewCounterVec(), now: time.Now,
	}
	o.Metrics.MustRegister(r.answers)
	r.requests = reconcile.New(reconcile.Options[types.NamespacedName]{
		Name: "webhooks", Debounce: debounce, MaxDebounce: maxDebounce,
		Reconcile: func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
			return r.requestCheck(ctx, key)
		},
		Failed: func(key types.NamespacedName, err error) {
			o.Log.Warn("the request of a git server could not be recorded, trying again", "namespace", key.Namespace, "name", key.Name, "err", err)
		},
	})
	return r
}

// Run records requests until ctx ends.
func (r *Receiver) Run(ctx context.Context) error {
	r.requests.Run(ctx, nil)
	return nil
}

// WrapFront returns a function that makes a handler before the API: it receives requests, and passes all else on to what front,
// which may be nil, makes.
func (r *Receiver) WrapFront(front func(hubKey []byte) (func(http.Handler) http.Handler, error)) func(hubKey []byte) (func(http.Handler) http.Handler, error) {
	return func(hubKey []byte) (func(http.Handler) http.Handler, error) {
		if front == nil {
			return r.wrapAPI, nil
		}
		wrap, err := front(hubKey)
		return func(api http.Handler) http.Handler { return r.wrapAPI(wrap(api)) }, err
	}
}

// wrapAPI returns a handler that receives requests, and passes all else on.
func (r *Receiver) wrapAPI(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasPrefix(req.URL.Path, pathPrefix) {
			next.ServeHTTP(w, req)
			return
		}
		r.ServeHTTP(w, req)
	})
}

// ServeHTTP answers one request.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// A writer that has no deadlines, as in tests, goes without.
	control := http.NewResponseController(w)
	_, _ = control.SetReadDeadline(time.Now().Add(requestTime)), control.SetWriteDeadline(time.Now().Add(requestTime))
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a webhook is a POST", http.StatusMethodNotAllowed)
		return
	}
	network := fairness.NetworkOfRequest(req)
	if wait := r.refusals.WaitTime(network, r.now()); wait > 0 {
		r.refuseForNow(w, wait)
		return
	}
	ctx, end := context.WithTimeout(req.Context(), requestTime)
	defer end()
	// A request that is slow, by its body or by the read of the token, ends for another one.
	release := r.places.Take(network, func() {
		end()
		_ = control.SetReadDeadline(time.Now())
	})
	defer release()
	req = req.WithContext(ctx)
	req.Body = http.MaxBytesReader(w, req.Body, maxBodyBytes)
	key, err := r.authenticateRequest(req)
	if err == nil {
		r.answers.WithLabelValues("accepted").Inc()
		r.requests.EnqueueAtOnce(key)
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintln(w, "the hub checks the Repository, unless it is suspended") // the client has gone
		return
	}
	if errors.Is(err, errNotReady) {
		r.refuseForNow(w, time.Second)
		return
	}
	r.refusals.TakeTurn(network, r.now())
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		r.answers.WithLabelValues("refused").Inc()
		http.Error(w, fmt.Sprintf("a request has at most %d bytes", maxBodyBytes), http.StatusRequestEntityTooLarge)
	case errors.Is(err, errUnread), ctx.Err() != nil:
		if ctx.Err() == nil {
			r.options.Log.Warn("a webhook could not be verified", "err", err)
		}
		r.refuseForNow(w, time.Second)
	default:
		r.answers.WithLabelValues("refused").Inc()
		http.Error(w, "no Repository of this name accepts this request: it has no webhook, or the request does not prove its token", http.StatusForbidden)
	}
}

// refuseForNow answers that the request may be repeated.
func (r *Receiver) refuseForNow(w http.ResponseWriter, wait time.Duration) {
	r.answers.WithLabelValues("postponed").Inc()
	fairness.SetRetryAfter(w.Header(), wait)
	http.Error(w, "too many requests, or the hub cannot read its store yet; try again", http.StatusTooManyRequests)
}

var (
	errNotReady = errors.New("the hub reads its tables")
	errRefused  = errors.New("the request proves no token")
	errUnread   = errors.New("the token of a webhook cannot be read")
)

// absentRepository stands in for a name without a webhook. It accepts no request, even if its Secret exists.
var absentRepository = &v1alpha1.Repository{
	ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "atoll-absent"},
	Spec:       v1alpha1.RepositorySpec{Webhook: &v1alpha1.RepositoryWebhook{SecretRef: v1alpha1.RepositorySecretRef{Name: "atoll-absent-webhook"}}},
}

// authenticateRequest returns the Repository whose token a request proves. A request for a name without a webhook reads a
// Secret and its body, too, so that neither the answer nor its time depends on the name.
func (r *Receiver) authenticateRequest(req *http.Request) (key types.NamespacedName, err error) {
	namespace, name, found := strings.Cut(strings.TrimPrefix(req.URL.Path, pathPrefix), "/")
	hub, ready := r.options.Hub()
	if !ready {
		return key, errNotReady
	}
	key = types.NamespacedName{Namespace: namespace, Name: name}
	repo, known := hub.Repositories.Get(key)
	if !found || !known || repo.DeletionTimestamp != nil || repo.Spec.Webhook == nil {
		repo = absentRepository
	}
	token, err := ReadToken(req.Context(), hub.Client, repo)
	if err != nil && !errors.Is(err, ErrNoToken) {
		return key, fmt.Errorf("%w: %w", errUnread, err)
	}
	proved, err := verifyRequest(req, token)
	if err == nil && (!proved || len(token) == 0 || repo == absentRepository) {
		err = errRefused
	}
	return key, err
}

// ErrNoToken is the error of a Repository whose webhook has no token that counts.
var ErrNoToken = fmt.Errorf("the Secret of the webhook does not exist, or its key token has fewer than %d bytes", MinTokenBytes)

// ReadToken returns the token of a Repository's webhook. The error is ErrNoToken, or one of the client.
func ReadToken(ctx context.Context, c client.Reader, repo *v1alpha1.Repository) ([]byte, error) {
	var secret corev1.Secret
	err := c.Get(ctx, client.ObjectKey{Namespace: repo.Namespace, Name: repo.Spec.Webhook.SecretRef.Name}, &secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the Secret of a webhook: %w", err)
	}
	token := bytes.TrimSpace(secret.Data["token"])
	if len(token) < MinTokenBytes {
		return nil, ErrNoToken
	}
	return token, nil
}

// requestCheck records the time of a request in the status of a Repository, or returns the wait until it may.
func (r *Receiver) requestCheck(ctx context.Context, key types.NamespacedName) (wait time.Duration, err error) {
	hub, ready := r.options.Hub()
	if !ready {
		return 0, errNotReady
	}
	repo, known := hub.Repositories.Get(key)
	if !known {
		return 0, nil // it is deleted
	}
	at := metav1.NewMicroTime(r.now())
	if last := repo.Status.WebhookTime; last != nil {
		// A time ahead is of a hub with another clock.
		if since := at.Sub(last.Time); since >= 0 && since < writeInterval {
			return writeInterval - since, nil
		}
	}
	now := repo.DeepCopy()
	now.Status.WebhookTime = &at
	err = hub.Client.Status().Patch(ctx, now, client.MergeFrom(repo), client.FieldOwner(atoll.HubFieldManager))
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("write the status of a Repository: %w", err)
	}
	return 0, nil
}
