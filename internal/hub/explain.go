package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/explain"
)

// explainPath answers GET with why an object is where it is, as JSON, or with
// output=text as text for people. Which object, the parameters group, kind,
// namespace and name say; cluster narrows the answer to one cluster, all=true leaves
// nothing of a fleet to a count. The API's own timeout parameter is honoured by the
// API server around it.
const explainPath = "/atoll/v1alpha1/explain"

// explainer answers one request.
type explainer struct {
	parts  *parts
	access *admission.Plugin
	user   user.Info
	now    time.Time
	// seen remembers what the user may read: by kind and namespace, then by key.
	seen map[atoll.ItemKey]bool
}

// serveExplain answers, or refuses with a Status as the API does.
func (l *lateParts) serveExplain(w http.ResponseWriter, r *http.Request) {
	e, q, err := l.explained(r)
	reply(w, e, q, err)
}

// reply with what was asked for by the query, as text or as JSON, or refuse with a Status
// as the API does.
func reply(w http.ResponseWriter, answer interface{ Text(all bool) string }, q url.Values, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	if q.Get("output") == "text" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, answer.Text(q.Get("all") == "true"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The only error left is that the asker has gone.
	_ = json.NewEncoder(w).Encode(answer)
}

func (l *lateParts) explained(r *http.Request) (explain.Explanation, url.Values, error) {
	none := explain.Explanation{}
	if r.Method != http.MethodGet {
		return none, nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "explain"}, r.Method)
	}
	q := r.URL.Query()
	for name := range q {
		if !slices.Contains([]string{"timeout", "group", "kind", "namespace", "name", "cluster", "output", "all"}, name) {
			return none, nil, apierrors.NewBadRequest(fmt.Sprintf("explain has no parameter %q; it has group, kind, namespace, name, cluster, output and all", name))
		}
	}
	p, ready := l.parts.Get()
	u, known := request.UserFrom(r.Context())
	switch {
	case !known:
		return none, nil, apierrors.NewUnauthorized("nobody asks")
	case !ready:
		return none, nil, starting("its tables are being read")
	case !p.bind.Loaded():
		return none, nil, starting("what is placed is being read")
	}
	x := &explainer{parts: p, access: l.plugin, user: u, now: time.Now(), seen: map[atoll.ItemKey]bool{}}
	key, err := x.subject(r.Context(), atoll.ItemKey{Group: q.Get("group"), Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")})
	if err != nil {
		return none, nil, err
	}
	e, err := x.explain(r.Context(), key)
	if err != nil {
		return none, nil, err
	}
	if cluster := q.Get("cluster"); cluster != "" {
		found := false
		if e, found = e.Only(cluster); !found {
			return none, nil, apierrors.NewBadRequest(fmt.Sprintf("the hub knows no cluster %q that could have a part in %s/%s; `atoll get clusters` lists them", cluster, key.Kind, key.Name))
		}
	}
	return e, q, nil
}

// starting tells clients to ask again in a second; client-go does that by itself.
func starting(why string) error {
	err := apierrors.NewServiceUnavailable("the hub is starting up: " + why + "; try again in a few seconds")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

func refuse(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	// The only error left is that the asker has gone.
	_ = json.NewEncoder(w).Encode(status)
}

// subject checks what is asked about and whether the user may read it. Who may not
// is told nothing else: neither whether it exists nor how its kind is doing.
func (x *explainer) subject(ctx context.Context, key atoll.ItemKey) (atoll.ItemKey, error) {
	if key.Kind == "" || key.Name == "" {
		return key, apierrors.NewBadRequest("say what to explain: kind, name, and for kinds outside of the core group, group")
	}
	namespaced, known := x.namespaced(key)
	if !known {
		return key, apierrors.NewBadRequest(unexplained(key))
	}
	if !namespaced {
		key.Namespace = ""
	} else if key.Namespace == "" {
		return key, apierrors.NewBadRequest(fmt.Sprintf("a %s is in a namespace: say which", key.Kind))
	}
	if !x.access.MayGet(ctx, x.user, key) {
		where := ""
		if namespaced {
			where = fmt.Sprintf(" in namespace %q", key.Namespace)
		}
		return key, apierrors.NewForbidden(schema.GroupResource{Group: key.Group, Resource: strings.ToLower(key.Kind)}, key.Name,
			fmt.Errorf("explained to those who may get it, and %q may not%s", x.user.GetName(), where))
	}
	return key, nil
}
