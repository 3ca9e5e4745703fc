package reach

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
)

var errNeedsCreate = errors.New("a request that upgrades its connection (exec, attach, port-forward) needs the verb create on clusters/proxy, whatever its method")

var errUpgrade = apierrors.NewBadRequest("a connection can be upgraded to websocket and SPDY/3.1, and to nothing else")

// failed answers for an agent that could not be asked.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // who asked has gone
	}
	c := askedOf(r.Context()).cluster
	h.refuse(w, r, Refusal(c, err))
}

// refuse a request.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		code = int(known.Status().Code)
	}
	h.metrics.answered(r.Method, code)
	h.o.Refuse(w, err)
}

// Refusal of a request to a cluster whose agent could not be asked, and why.
func Refusal(c *v1alpha1.Cluster, err error) error {
	s, known := status.FromError(err)
	if !known {
		return unavailable(c, "the connection to its agent broke: "+err.Error())
	}
	switch s.Code() {
	case codes.NotFound:
		return unavailable(c, away(c))
	case codes.ResourceExhausted:
		return apierrors.NewTooManyRequests(fmt.Sprintf("cluster %s: %s", c.Name, s.Message()), 1)
	case codes.Unimplemented, codes.DeadlineExceeded:
		return unavailable(c, s.Message())
	}
	return unavailable(c, "the connection to its agent broke: "+s.Message())
}

// away says since when a cluster is.
func away(c *v1alpha1.Cluster) string {
	text := "its agent is not connected to the hub"
	if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady); ready != nil && ready.Status != "True" {
		text += fmt.Sprintf(", since about %s", ready.LastTransitionTime.UTC().Format(time.RFC3339))
	}
	return text + "; it can be reached again when the agent is back"
}

// Unreachable says why a cluster is not to be asked at all; nil where it may be.
func Unreachable(c *v1alpha1.Cluster) error {
	switch {
	case !c.Spec.Accepted:
		return unavailable(c, "it is not accepted; on the hub run: atoll accept "+c.Name)
	case c.Spec.CheckIn() > 0:
		return unavailable(c, "it checks in every "+c.Spec.CheckIn().String()+" and holds no stream; only clusters of connection.type Stream can be reached through the hub")
	}
	return nil
}

// unavailable is 503 with a reason.
func unavailable(c *v1alpha1.Cluster, why string) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s cannot be reached: %s", c.Name, why))
}

// unescaped path; what cannot be unescaped stays, for the member to refuse.
func unescaped(path string) string {
	if p, err := url.PathUnescape(path); err == nil {
		return p
	}
	return path
}
