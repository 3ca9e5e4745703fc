package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
	"atoll.dev/atoll/internal/memberproxy"
	"atoll.dev/atoll/internal/trust/person"
)

const (
	// answerTimeout is how long a member may take to answer for a list or an object.
	answerTimeout = 10 * time.Second
	// atOnce members get requests at a time for one list.
	atOnce = 128
	// answerMost bounds what a member answers at once, in bytes.
	answerMost = 64 << 20
)

// Options of a Fleet; all are required.
type Options struct {
	// Tables of the hub; false until they are read.
	Tables func() (Tables, bool)
	// Own reports whether a user is one of the hub's own identities, which see what is stored alone.
	Own func(user.Info) bool
	// Reach leads to members.
	Reach *memberproxy.ProxyHandler
}

// Fleet is what runs in members.
type Fleet struct {
	o       Options
	history *fleetview.VersionHistory
	watches watchWakeups
	shares  memberRequestLimiter
	budget  *memoryBudget
	// workloads are upstream's storage of what has a history; set by Install.
	workloads map[schema.GroupKind]*genericregistry.Store
}

// New makes a Fleet, whose resource versions are counted from now on.
func New(o Options) *Fleet {
	return &Fleet{o: o, history: fleetview.NewHistory(time.Now()), budget: newMemoryBudget(heldMost), workloads: map[schema.GroupKind]*genericregistry.Store{}, shares: memberRequestLimiter{maxPerUser: o.Reach.MaxRequestsPerUser()}}
}

// member that gets the request.
type member struct {
	*v1alpha1.Cluster
	// in are the namespaces in which it has rows.
	in []string
	fleetview.Member
}

// newMember returns a member with the namespaces of its rows. Its templates are those that a row of
// it holds: of any other template it shows an object of its own.
func newMember(t Tables, c *v1alpha1.Cluster, in []string) *member {
	template := func(key atoll.ItemKey) (metav1.Object, bool) {
		if o, ok := t.Template(key); ok && t.HasRowForTemplate(key, c.Name) {
			return o, true
		}
		return nil, false
	}
	return &member{Cluster: c, in: in, Member: fleetview.Member{Cluster: c.Name, Template: template}}
}

// isTrustedIn reports whether the member may answer for objects in a namespace.
func (m *member) isTrustedIn(namespace string) bool { return slices.Contains(m.in, namespace) }

// clusterHasRowsInNamespace reports whether a cluster has rows in a namespace by now.
func (f *Fleet) clusterHasRowsInNamespace(namespace, cluster string) bool {
	t, ok := f.o.Tables()
	return ok && t.PlacedAt(namespace, cluster)
}

// hubTables returns the tables of the hub, or why there are none.
func (f *Fleet) hubTables() (Tables, error) {
	t, ok := f.o.Tables()
	if !ok {
		err := apierrors.NewServiceUnavailable("the hub is starting up: it has not read yet what is placed where; try again in a few seconds")
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return Tables{}, err
	}
	return t, nil
}

// membersFor returns the members that may have what is selected in a namespace.
func (f *Fleet) membersFor(namespace string, s fleetview.FleetSelection) ([]*member, error) {
	t, err := f.hubTables()
	if err != nil {
		return nil, err
	}
	var out []*member
	for name, in := range t.PlacedNamespacesByCluster(namespace) {
		if _, _, selected := s.SelectorsFor(name); !selected {
			continue
		}
		if c, ok := t.Cluster(name); ok {
			out = append(out, newMember(t, c, in))
		}
	}
	slices.SortFunc(out, func(a, b *member) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// membersWithRowOfTemplate returns the members that have a row of a Bundle that holds a template, by name, with the
// namespace of the template; the names of wanted are those where the template is to stay.
func (f *Fleet) membersWithRowOfTemplate(key atoll.ItemKey) (holders []*member, wanted map[string]bool, err error) {
	t, err := f.hubTables()
	if err != nil {
		return nil, nil, err
	}
	if wanted, err = t.HoldersOf(key); err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if c, ok := t.Cluster(name); ok {
			holders = append(holders, newMember(t, c, []string{key.Namespace}))
		}
	}
	return holders, wanted, nil
}

// memberOfName returns the member of an object that is shown under a name in a namespace, and its own
// name there; false where that is no name of what is shown.
func (f *Fleet) memberOfName(namespace, name string) (m *member, object string, ok bool) {
	object, cluster, ok := fleetview.SplitFullName(name)
	if !ok || namespace == "" {
		return nil, "", false
	}
	t, ready := f.o.Tables()
	if !ready {
		return nil, "", false
	}
	c, ok := t.Cluster(cluster)
	if !ok || !t.PlacedAt(namespace, cluster) {
		return nil, "", false
	}
	return newMember(t, c, []string{namespace}), object, true
}

// requestFromMember sends a request to a member's agent in the hub's own name. The body of the answer is
// the caller's to close.
func (f *Fleet) requestFromMember(ctx context.Context, m *member, path string, query url.Values) (*http.Response, error) {
	if err := memberproxy.UnreachableReason(m.Cluster); err != nil {
		return nil, err
	}
	at := url.URL{Scheme: "http", Host: string(m.UID), Path: path, RawQuery: query.Encode()}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("read from cluster %s: %w", m.Name, err)
	}
	r.Host = atoll.FleetViewHost
	if id := audit.GetAuditIDTruncated(ctx); id != "" {
		r.Header.Set("Audit-Id", id)
	}
	left, err := f.shares.acquireSlot(ctx, m.Name)
	if err != nil {
		return nil, markIfTooManyRequests(err)
	}
	left = sync.OnceFunc(left)
	answer, err := f.o.Reach.Transport().RoundTrip(r)
	if err != nil {
		left()
		return nil, markIfTooManyRequests(memberproxy.RefusalFor(m.Cluster, err))
	}
	answer.Body = slotHoldingBody{answer.Body, left}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, m.memberError(answer)
	}
	return answer, nil
}

// crowdedError is a full limit of requests at a cluster, or of memory for its answer, as an error
// of the API. A member's own temporary refusal is another error.
type crowdedError struct{ *apierrors.StatusError }

func markIfTooManyRequests(err error) error {
	if s, ok := err.(*apierrors.StatusError); ok && apierrors.IsTooManyRequests(s) {
		return crowdedError{s}
	}
	return err
}

// unknownPath is the message of an agent of a version without the path of a request.
var unknownPath = apierrors.NewNotFound(schema.GroupResource{}, "").ErrStatus.Message

// memberError reads an error of a member.
func (m *member) memberError(answer *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return memberproxy.RefusalFor(m.Cluster, err)
	}
	obj, _, err := liveAnswers.Decode(body, nil, nil)
	s, ok := obj.(*metav1.Status)
	if err != nil || !ok {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s answers %s", m.Name, answer.Status))
	}
	if answer.StatusCode == http.StatusForbidden && strings.HasSuffix(s.Message, person.NamesNobody) {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its agent is of a version that does not show what runs; update it", m.Name))
	}
	if answer.StatusCode == http.StatusNotFound && s.Message == unknownPath {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its agent is of a version that does not show that; update it", m.Name))
	}
	if memberproxy.RefusesByRBAC(s.Message) {
		s.Message += "; this is the cluster's own RBAC, which does not let its agent show that: the ClusterRole atoll-agent of this version does, and its administrator brings it up to date by `atoll join` or the chart"
	}
	return m.translateStatus(s)
}

// translateStatus returns an error of a member as one of the hub's. Codes that the API server or a
// client would misread become 502: a code that is not an error, and 401, after which people check
// their own credentials.
func (m *member) translateStatus(s *metav1.Status) error {
	switch {
	case s.Code == http.StatusUnauthorized:
		return memberproxy.BadAnswerError(m.Cluster, "its API server does not accept its agent's credentials: "+s.Message)
	case s.Code < 400 || s.Code > 599:
		return memberproxy.BadAnswerError(m.Cluster, fmt.Sprintf("its agent answers with an error of code %d, which is none: %s", s.Code, s.Message))
	}
	s.Status, s.Message = metav1.StatusFailure, "cluster "+m.Name+": "+s.Message
	return &apierrors.StatusError{ErrStatus: *s}
}

// read reads an object or a list of a member.
func (f *Fleet) read(ctx context.Context, m *member, path string, query url.Values) (runtime.Object, error) {
	return f.readBy(ctx, m, path, query, liveAnswers)
}

// readBy reads by a decoder. Its memory is held until ctx ends.
func (f *Fleet) readBy(ctx context.Context, m *member, path string, query url.Values, by responseDecoder) (runtime.Object, error) {
	ctx, hold := f.withMemoryReservation(ctx)
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := f.requestFromMember(ctx, m, path, query)
	if err != nil {
		return nil, timeoutError(ctx, m, err)
	}
	defer answer.Body.Close()
	body, err := hold.readAll(ctx, answer.Body)
	defer func() { hold.releaseBytes(int64(cap(body))) }()
	if errors.Is(err, errFull) {
		return nil, memoryFullError(m)
	}
	if err != nil {
		return nil, timeoutError(ctx, m, memberproxy.RefusalFor(m.Cluster, err))
	}
	obj, err := by.decodeLimited(body, func(weight int) error { return hold.reserveBytes(ctx, int64(weight)) })
	if errors.Is(err, errFull) {
		return nil, memoryFullError(m)
	}
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: what its agent answers cannot be read: %v", m.Name, err))
	}
	return obj, nil
}

// openMemberStream opens a stream of a member in the hub's own name: it is to begin within the time of an answer,
// and goes on for as long as ctx. Its body is the caller's to close.
func (f *Fleet) openMemberStream(ctx context.Context, m *member, path string, query url.Values) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	hangs := time.AfterFunc(answerTimeout, func() { cancel(answerTimeoutError(m)) })
	answer, err := f.requestFromMember(ctx, m, path, query)
	if begun := hangs.Stop(); err == nil && !begun {
		_ = answer.Body.Close() // it gives no error
		err = context.Cause(ctx)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	answer.Body = slotHoldingBody{answer.Body, func() { cancel(nil) }}
	return answer, nil
}

func answerTimeoutError(m *member) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s did not answer within %s", m.Name, answerTimeout))
}

// timeoutError returns an error that names the member if the deadline of the context has passed,
// else err.
func timeoutError(ctx context.Context, m *member, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return answerTimeoutError(m)
	}
	return err
}

// memberQuery returns the query to a member for what is selected.
func memberQuery(m *member, s fleetview.FleetSelection) url.Values {
	q := url.Values{}
	label, field, _ := s.SelectorsFor(m.Name)
	setNonEmpty(q, "labelSelector", label)
	setNonEmpty(q, "fieldSelector", field)
	return q
}

// list lists what a member has of what is selected in a namespace, as shown gives it, which is nil
// of what is not, and the version of the list.
func (f *Fleet) list(ctx context.Context, m *member, k kind, namespace string, s fleetview.FleetSelection, shown func(runtime.Object, metav1.Object) (runtime.Object, error)) (objects []runtime.Object, version string, err error) {
	list, err := f.read(ctx, m, k.memberPath(namespace, ""), memberQuery(m, s))
	if err != nil {
		return nil, "", err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its agent answers with a %T", m.Name, list))
	}
	if version, err = m.checkVersionLength(of.GetResourceVersion()); err != nil {
		return nil, "", err
	}
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		o, err := meta.Accessor(obj)
		if err != nil {
			return fmt.Errorf("read a list of cluster %s: %w", m.Name, err)
		}
		one, err := shown(obj, o)
		if err == nil && one != nil {
			objects = append(objects, one)
		}
		return err
	})
	return objects, version, err
}

// isTemplate reports whether an object of the member is one on the hub, where it is shown already.
func (m *member) isTemplate(k kind, o metav1.Object) bool {
	_, is := m.Template(k.itemKey(o))
	return is
}

// convertToShown shows a selected object of a member as storage would have it.
func (m *member) convertToShown(k kind, obj runtime.Object, o metav1.Object, by fleetview.FleetSelection) (runtime.Object, error) {
	m.ConvertSelectedToHubForm(o, by)
	return k.toInternal(obj, k.newObject())
}

func setNonEmpty(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}
