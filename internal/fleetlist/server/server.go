// Package server answers with lists of the fleet: counts of clusters, pages of slim clusters, slim Sources, and a search by names.
// Counts, pages and Sources are also streams of changes.
//
// Contract: a user gets what the API would list for the user. Rights are checked for each answer of a stream, so a right that
// ends, ends the stream. Nothing is read from the store. Requests of one person are limited, and few passes over the fleet run at
// a time. A stream costs nothing while what it shows does not change. All methods are safe for concurrent use.
package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery/fairness"
	"atoll.dev/atoll/internal/fleetlist"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/state"
)

const (
	// maxPasses is how many passes over the fleet run at one time. Others wait.
	maxPasses = 2
	// defaultPassTime bounds one pass. A pass over 100,000 clusters takes 14 to 43 ms of CPU.
	defaultPassTime = 5 * time.Second
	// maxNamespace bounds the name of a namespace.
	maxNamespace = 63
	// defaultGroups is how many groups counts have where a request has no limit, and maxGroups how many they have at most.
	defaultGroups, maxGroups = 200, 1000
)

// The limits of requests, each of which may take a pass over the fleet.
var (
	personRequests = pace.PerSecond(5, 50)
	allRequests    = pace.PerSecond(50, 300)
)

// Options of a Server.
type Options struct {
	// Tables returns the hub's tables; false before they are read.
	Tables func() (*state.HubTables, bool)
	// Authorizer returns the authorizer of the API.
	Authorizer func() authorizer.Authorizer
}

// Server answers requests for lists.
type Server struct {
	options Options
	limiter *fairness.RequestLimiter
	fleet   fleet
	sources sourceStreams
	slots   streamSlots
	// passes has an entry for each pass that is under way, and passTime bounds each.
	passes   chan struct{}
	passTime time.Duration
}

// New returns a Server.
func New(o Options) *Server {
	return &Server{options: o, limiter: fairness.NewRequestLimiter(personRequests, allRequests), passes: make(chan struct{}, maxPasses), passTime: defaultPassTime}
}

// question is what every request has.
type question struct {
	user   user.Info
	tables *state.HubTables
	values url.Values
	limit  int
	watch  bool
}

// endpoint is what requests of one endpoint may have.
type endpoint struct {
	name         string
	parameters   []string
	defaultLimit int
	maxLimit     int
}

// readQuestion returns the question of a request that is within its limits.
func (s *Server) readQuestion(r *http.Request, e endpoint) (q question, err error) {
	u, known := request.UserFrom(r.Context())
	switch {
	case r.Method != http.MethodGet:
		return q, refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: e.name}, r.Method))
	case !known:
		return q, refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewUnauthorized("the request has no user"))
	}
	q = question{user: u, values: r.URL.Query(), limit: e.defaultLimit, watch: respond.WantsStream(r)}
	if err := respond.CheckParameters(q.values, e.name, e.parameters...); err != nil {
		return q, err
	}
	if text := q.values.Get("limit"); text != "" {
		if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 || q.limit > e.maxLimit {
			return q, badRequest(fmt.Errorf("limit is from 1 to %d", e.maxLimit))
		}
	}
	if len(q.values.Get("namespace")) > maxNamespace {
		return q, badRequest(fmt.Errorf("a namespace has at most %d characters", maxNamespace))
	}
	if wait, ok := s.limiter.TakeTurn(u.GetName(), time.Now()); !ok {
		return q, apierrors.NewTooManyRequests("you request lists of the fleet faster than the hub answers one person; try again later", max(1, int(wait.Round(time.Second).Seconds())))
	}
	tables, ready := s.options.Tables()
	if !ready {
		return q, respond.StillStarting("its tables are being read")
	}
	q.tables = tables
	return q, nil
}

func badRequest(err error) error {
	return refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewBadRequest(err.Error()))
}

// resource is a resource of Atoll's API, in a namespace or in all.
type resource struct{ name, namespace string }

// authorizeList returns the refusal of the API for a user that may not list the objects; for a stream, that may not watch them.
func (s *Server) authorizeList(ctx context.Context, q question, on resource) error {
	verbs := []string{"list"}
	if q.watch {
		verbs = append(verbs, "watch")
	}
	for _, verb := range verbs {
		if s.hasRight(ctx, q.user, verb, on) {
			continue
		}
		scope := "in all namespaces"
		if on.namespace != "" {
			scope = "in the namespace " + on.namespace
		} else if on.name == clusterResource {
			scope = "on the hub"
		}
		why := fmt.Errorf("the list has what the API lists: it needs the right to %s %s %s, which %q does not have", verb, on.name, scope, q.user.GetName())
		return refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: on.name}, "", why))
	}
	return nil
}

const clusterResource = "clusters"

// hasRight reports whether a user has a verb on a resource, as the API decides it.
func (s *Server) hasRight(ctx context.Context, u user.Info, verb string, on resource) bool {
	decision, _, err := s.options.Authorizer().Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: on.name, Namespace: on.namespace, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// awaitPass waits for the turn of a pass. The caller ends it by the function.
func (s *Server) awaitPass(ctx context.Context) (end func(), err error) {
	select {
	case s.passes <- struct{}{}:
		return func() { <-s.passes }, nil
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError("the request ended before its turn", 1)
	}
}

// guardPass returns what a pass checks now and then: whether it may go on.
func (s *Server) guardPass(ctx context.Context) (keepOn func() bool) {
	begin := time.Now()
	return func() bool { return ctx.Err() == nil && time.Since(begin) < s.passTime }
}

// describeEndedPass returns the error of a pass that is not complete.
func describeEndedPass(ctx context.Context) error {
	if ctx.Err() != nil {
		return apierrors.NewTimeoutError("the request ended before its answer", 1)
	}
	return badRequest(errors.New("the filter takes too long for this fleet: use fewer words, or fields such as region: in place of words"))
}

// filterParameters are the parameters of a filter.
var filterParameters = []string{"q", "labelSelector", "status", "group", "value", "waiting", "by"}

// readFilter returns the filter of a request, and the property by which it groups; nil for none.
func (q question) readFilter() (f fleetlist.Filter, by *fleetlist.Property, err error) {
	if name := q.values.Get("by"); name != "" {
		if by, err = fleetlist.FindProperty(name); err != nil {
			return f, nil, badRequest(err)
		}
	}
	in := fleetlist.FilterInput{Text: q.values.Get("q"), Selector: q.values.Get("labelSelector"), States: q.values.Get("status")}
	if text := q.values.Get("waiting"); text != "" {
		if in.Waiting, err = strconv.ParseBool(text); err != nil {
			return f, nil, badRequest(errors.New("waiting is true or false"))
		}
	}
	groups, values := q.values["group"], q.values["value"]
	if len(groups) != len(values) {
		return f, nil, badRequest(errors.New("each group has a value: group names the property, and value its value; both may be repeated"))
	}
	for i, name := range groups[:min(len(groups), maxGroupParameters)] {
		p, err := fleetlist.FindProperty(name)
		if err != nil {
			return f, nil, badRequest(err)
		}
		in.Groups = append(in.Groups, fleetlist.GroupValue{Property: p, Value: values[i]})
	}
	if f, err = fleetlist.NewFilter(in); err != nil {
		return f, nil, badRequest(err)
	}
	return f, by, nil
}

// maxGroupParameters bounds the groups that are read. It is more than a filter takes, which then refuses them.
const maxGroupParameters = 20
