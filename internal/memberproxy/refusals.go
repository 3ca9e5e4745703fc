package memberproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

var errNeedsCreate = errors.New("a request that upgrades its connection (exec, attach, port-forward) needs the verb create on clusters/proxy, whatever its method")

var errUpgrade = apierrors.NewBadRequest("a connection can be upgraded to websocket and SPDY/3.1, and to nothing else")

// writeAgentError answers for an agent that could not be reached.
func (h *ProxyHandler) writeAgentError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has gone
	}
	c := proxyRequestOf(r.Context()).cluster
	h.writeRefusal(w, r, RefusalFor(c, err))
}

// writeRefusal refuses a request.
func (h *ProxyHandler) writeRefusal(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		code = int(known.Status().Code)
	}
	h.metrics.countAnswer(r.Method, code)
	h.o.Refuse(w, err)
}

// BadAnswerError is 502: a cluster got the request, and its answer cannot be handed on.
func BadAnswerError(c *v1alpha1.Cluster, why string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusBadGateway, Reason: metav1.StatusReason(atoll.ReasonBadGateway), Message: fmt.Sprintf("cluster %s: %s", c.Name, why),
	}}
}

// RefusalFor returns the refusal of a request to a cluster whose agent could not be reached, and why. An error of the
// API stays as it is.
func RefusalFor(c *v1alpha1.Cluster, err error) error {
	if away := (*leadsAwayError)(nil); errors.As(err, &away) {
		return unavailableError(c, away.Error())
	}
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		return err
	}
	s, known := status.FromError(err)
	if !known {
		return unavailableError(c, "the connection to its agent broke: "+err.Error())
	}
	switch s.Code() {
	case codes.NotFound:
		return unavailableError(c, disconnectedSince(c))
	case codes.ResourceExhausted:
		return apierrors.NewTooManyRequests(fmt.Sprintf("cluster %s: %s", c.Name, s.Message()), 1)
	case codes.Unimplemented, codes.DeadlineExceeded:
		return unavailableError(c, s.Message())
	}
	return unavailableError(c, "the connection to its agent broke: "+s.Message())
}

// refusalMost bounds a refusal of a member that is read, in bytes.
const refusalMost = 64 << 10

// addClusterToRefusal adds the cluster to a member's refusal: a reader of members' objects may see no
// cluster. An answer larger than a refusal of an API is passed on as it comes: for a request to a
// pod through the hub, 403 may be a page.
func addClusterToRefusal(c *v1alpha1.Cluster, r *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, refusalMost+1))
	if err == nil && len(body) > refusalMost {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		return nil
	}
	_ = r.Body.Close() // nothing more of it is needed
	if err != nil {
		return err
	}
	var s metav1.Status
	if json.Unmarshal(body, &s) == nil && s.Kind == "Status" {
		s.Message = "cluster " + c.Name + ": " + AddRefusalHint(s.Message)
		if body, err = json.Marshal(s); err != nil {
			return err
		}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// RefusesByRBAC reports whether a message is one of RBAC.
func RefusesByRBAC(message string) bool {
	return strings.Contains(message, `User "`) && strings.Contains(message, `" cannot `)
}

// AddRefusalHint adds to a member's refusal what to do, where its RBAC refuses a person, or the
// agent's impersonation of the person.
func AddRefusalHint(message string) string {
	switch {
	case !RefusesByRBAC(message):
		return message
	case strings.Contains(message, `" cannot impersonate`):
		return message + "; the cluster's agent may not send requests in your name: its administrator lets it by `atoll join --allow impersonate`, or a ClusterRole for it, and you then need a role there"
	}
	return message + "; this is refused by the cluster's own RBAC, not by the hub's: its administrator can give you a role there"
}

// disconnectedSince returns the text that the agent is disconnected, and since when.
func disconnectedSince(c *v1alpha1.Cluster) string {
	text := "its agent is not connected to the hub"
	if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady); ready != nil && ready.Status != "True" {
		text += fmt.Sprintf(", since about %s", phrase.FormatTime(ready.LastTransitionTime.Time))
	}
	return text + "; it can be reached again when the agent is back"
}

// UnreachableReason returns why a cluster may get no request at all; nil where it may be.
func UnreachableReason(c *v1alpha1.Cluster) error {
	switch {
	case !c.Spec.Accepted:
		return unavailableError(c, "it is not accepted; on the hub run: atoll accept "+c.Name)
	case c.Spec.CheckInInterval() > 0:
		return unavailableError(c, "it checks in every "+c.Spec.CheckInInterval().String()+" and holds no stream; only clusters of connection.type Stream can be reached through the hub")
	}
	return nil
}

// unavailableError is 503 with a reason.
func unavailableError(c *v1alpha1.Cluster, why string) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s cannot be reached: %s", c.Name, why))
}

// unescapePath returns the unescaped path; what cannot be unescaped stays, for the member to refuse.
func unescapePath(path string) string {
	if p, err := url.PathUnescape(path); err == nil {
		return p
	}
	return path
}
