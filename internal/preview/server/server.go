package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/bundlestatus"
	"atoll.dev/atoll/internal/placer"
	"atoll.dev/atoll/internal/placer/decisions"
	"atoll.dev/atoll/internal/preview/explain"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/undo/history"
)

// userQuery answers one request.
type userQuery struct {
	sources Sources
	plugin  *admission.AdmissionPlugin
	user    user.Info
	now     time.Time
	// readable stores what the user may read: by kind and namespace, then by key.
	readable map[atoll.ItemKey]bool
}

// Sources are the tables and the functions that act, which the Server reads and calls.
type Sources struct {
	State        *state.HubTables
	Binder       *binder.Binder
	Placer       *placer.PlacementReconciler
	Decisions    *decisions.DecisionPublisher
	BundleStatus *bundlestatus.BundleReconciler
	// Undo is what is kept for undo; nil: nothing.
	Undo KeptChanges
}

// KeptChanges are the changes of users that are kept for undo.
type KeptChanges interface {
	// CountDropped counts the changes that another undo window would drop.
	CountDropped(window time.Duration) int
	// FindLatest returns the latest kept change of an object, and until when it can be taken back.
	FindLatest(key atoll.ItemKey) (c history.Change, until time.Time, ok bool)
}

// Server answers the requests. Its fields are set before the first request.
type Server struct {
	// Sources is false until the tables have their first lists.
	Sources func() (Sources, bool)
	Plugin  *admission.AdmissionPlugin
	// ReserveMemory counts the bytes that a user's request is about to take, until release is called.
	// It refuses while the hub holds too much for the user. Nil: nothing is counted.
	ReserveMemory func(user, what string, n int64) (release func(), err error)
}

// newQuery returns the query of the user of the request.
func (s *Server) newQuery(r *http.Request) (*userQuery, error) {
	u, known := request.UserFrom(r.Context())
	if !known {
		return nil, refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewUnauthorized("the request has no user"))
	}
	x, ready := s.newUserQuery(u)
	if !ready {
		return nil, respond.StillStarting("its tables are being read")
	}
	return x, nil
}

// beginGetQuery checks the method and the parameters of a GET, counts the memory of its answer, and returns the
// query of its user. The caller releases the memory; release is nil with an error.
func (s *Server) beginGetQuery(r *http.Request, endpoint, what string, memory int64, parameters ...string) (x *userQuery, release func(), err error) {
	if r.Method != http.MethodGet {
		return nil, nil, methodNotSupportedError(endpoint, r.Method)
	}
	if err := respond.CheckParameters(r.URL.Query(), endpoint, parameters...); err != nil {
		return nil, nil, err
	}
	if release, err = s.reserveMemory(r, what, memory); err != nil {
		return nil, nil, err
	}
	if x, err = s.newQuery(r); err != nil {
		release()
		return nil, nil, err
	}
	return x, release, nil
}

// itemKeyFromQuery returns the object that the parameters name.
func itemKeyFromQuery(q url.Values) atoll.ItemKey {
	return atoll.ItemKey{Group: q.Get("group"), Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")}
}

// newUserQuery returns the query of a user; false until the tables are read and bound.
func (s *Server) newUserQuery(u user.Info) (*userQuery, bool) {
	sources, ready := s.Sources()
	if !ready || !sources.Binder.IsLoaded() {
		return nil, false
	}
	return &userQuery{sources: sources, plugin: s.Plugin, user: u, now: time.Now(), readable: map[atoll.ItemKey]bool{}}, true
}

// badRequest refuses a malformed request.
func badRequest(format string, args ...any) error {
	return refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewBadRequest(fmt.Sprintf(format, args...)))
}

// methodNotSupportedError refuses a method that an endpoint does not have.
func methodNotSupportedError(endpoint, method string) error {
	return refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: endpoint}, method))
}

// decodeBody reads the JSON of a POST, of so many bytes at most.
func decodeBody(w http.ResponseWriter, r *http.Request, endpoint string, maxBytes int64, into any) error {
	if r.Method != http.MethodPost {
		return methodNotSupportedError(endpoint, r.Method)
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBytes))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// ServeExplain answers, or refuses with a Status as the API does.
func (s *Server) ServeExplain(w http.ResponseWriter, r *http.Request) {
	e, err := s.answerExplain(r)
	respond.WriteAnswer(w, e, r.URL.Query(), err)
}

func (s *Server) answerExplain(r *http.Request) (explain.Explanation, error) {
	none, q := explain.Explanation{}, r.URL.Query()
	if r.Method != http.MethodGet {
		return none, methodNotSupportedError("explain", r.Method)
	}
	if err := respond.CheckParameters(q, "explain", "group", "kind", "namespace", "name", "cluster", "output", "all"); err != nil {
		return none, err
	}
	x, err := s.newQuery(r)
	if err != nil {
		return none, err
	}
	key, err := x.checkReadableObject(r.Context(), itemKeyFromQuery(q))
	if err != nil {
		return none, err
	}
	e, err := x.explainObject(r.Context(), key)
	if cluster := q.Get("cluster"); err == nil && cluster != "" {
		found := false
		if e, found = e.FilterCluster(cluster); !found {
			return none, refusal.WithReason(atoll.ReasonNotFound, apierrors.NewBadRequest(fmt.Sprintf("the hub has no cluster %q that could have a part in %s/%s; `atoll get clusters` lists them", cluster, key.Kind, key.Name)))
		}
	}
	return e, err
}

// checkReadableObject checks the requested object and the user's right to read it. A user without the
// right gets nothing else: neither whether it exists nor the state of its kind.
func (x *userQuery) checkReadableObject(ctx context.Context, key atoll.ItemKey) (atoll.ItemKey, error) {
	if key.Kind == "" || key.Name == "" {
		return key, badRequest("name what to explain: kind, name, and for kinds outside of the core group, group")
	}
	namespaced, known := x.isNamespacedKind(key)
	if !known {
		return key, refusal.WithReason(atoll.ReasonOtherKind, apierrors.NewBadRequest(whyNotExplainable(key)))
	}
	if !namespaced {
		key.Namespace = ""
	} else if key.Namespace == "" {
		return key, badRequest("a %s is in a namespace: name it", key.Kind)
	}
	if !x.plugin.MayGet(ctx, x.user, key) {
		where := ""
		if namespaced {
			where = fmt.Sprintf(" in namespace %q", key.Namespace)
		}
		why := fmt.Errorf("explained to users that may get it, and %q may not%s", x.user.GetName(), where)
		return key, refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewForbidden(schema.GroupResource{Group: key.Group, Resource: strings.ToLower(key.Kind)}, key.Name, why))
	}
	return key, nil
}
