package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	podrest "k8s.io/kubernetes/pkg/registry/core/pod/rest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
)

// findMemberOfPod returns the member in which a pod runs, and its name there: that of what is shown, or
// of a template that runs in one member. acts is false of a request that only reads.
func (o *objectStorage) findMemberOfPod(ctx context.Context, name, lacks string, acts bool) (*member, string, error) {
	namespace := request.NamespaceValue(ctx)
	_, err := o.Store.Get(ctx, name, &metav1.GetOptions{})
	switch {
	case err == nil && o.fleet.isHubIdentity(ctx):
		return nil, "", nothingRunsError(namespace, name, lacks)
	case err == nil:
		return o.findSoleMember(ctx, namespace, name, lacks)
	case !apierrors.IsNotFound(err) || o.fleet.isHubIdentity(ctx):
		return nil, "", err
	}
	at, failed := o.findMemberObject(ctx, name, acts)
	switch {
	case failed != nil:
		return nil, "", failed
	case at == nil:
		return nil, "", err
	case at.by.IsByOwnName(): // which was found there
		return at.member, at.own, nil
	}
	switch failed := o.fleet.checkMemberHas(ctx, at.member, o.kind, namespace, at.own); {
	case apierrors.IsNotFound(failed):
		return nil, "", err
	case failed != nil:
		return nil, "", failed
	}
	return at.member, at.own, nil
}

// findSoleMember returns the one member in which a template runs, of those of which a row holds it. No
// member stands in for one that cannot be reached and is to have the template: what the user sends may
// be meant for that one alone.
func (o *objectStorage) findSoleMember(ctx context.Context, namespace, name, lacks string) (*member, string, error) {
	holders, wanted, err := o.fleet.membersWithRowOfTemplate(atoll.ItemKey{Group: o.kind.Group, Kind: o.kind.Kind, Namespace: namespace, Name: name})
	if err != nil {
		return nil, "", err
	}
	var mu sync.Mutex
	var found []*member
	var away, awaited error
	o.fleet.forEachMember(holders, func(m *member) {
		err := o.fleet.checkMemberHas(ctx, m, o.kind, namespace, name)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			found = append(found, m)
		case apierrors.IsNotFound(err):
		case wanted[m.Name]:
			awaited = err
		default:
			away = err
		}
	})
	switch {
	case awaited != nil:
		return nil, "", awaited
	case len(found) == 1:
		return found[0], name, nil
	case len(found) > 1:
		names := make([]string, len(found))
		for i, m := range found {
			names[i] = m.Name
		}
		return nil, "", fleetview.AmbiguousNameError(namespace, name, names)
	case away != nil:
		return nil, "", away
	}
	return nil, "", nothingRunsError(namespace, name, lacks)
}

// nothingRunsError returns the error for a pod that runs neither on the hub nor in a member; lacks
// is what the request missed.
func nothingRunsError(namespace, name, lacks string) error {
	return apierrors.NewBadRequest(fmt.Sprintf("pod %s/%s %s here: the hub keeps templates, and runs nothing; it runs in no cluster either, and `atoll explain` shows why", namespace, name, lacks))
}

// podLogStorage serves the logs of pods.
type podLogStorage struct {
	*podrest.LogREST
	pods *objectStorage
}

// Get returns a stream of a pod's log.
func (l *podLogStorage) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	asked, ok := options.(*api.PodLogOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the options of a log are a %T", options))
	}
	if errs := validation.ValidatePodLogOptions(asked, asked.Stream != nil); len(errs) > 0 {
		return nil, apierrors.NewInvalid(api.Kind("PodLogOptions"), name, errs)
	}
	query, err := legacyscheme.ParameterCodec.EncodeParameters(asked, corev1.SchemeGroupVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	m, object, err := l.pods.findMemberOfPod(ctx, name, "has no logs", false)
	if err != nil {
		return nil, err
	}
	return &logStream{fleet: l.pods.fleet, of: m, path: l.pods.kind.memberPath(request.NamespaceValue(ctx), object) + "/log", query: query, follow: asked.Follow}, nil
}

// logStream is a pod's log, once it is read.
type logStream struct {
	fleet  *Fleet
	of     *member
	path   string
	query  url.Values
	follow bool
}

var _ rest.ResourceStreamer = &logStream{}

// GetObjectKind is for the API server, to which all is an object.
func (*logStream) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject is for the API server too.
func (s *logStream) DeepCopyObject() runtime.Object { c := *s; return &c }

// InputStream requests it from the member, in the hub's own name.
func (s *logStream) InputStream(ctx context.Context, _, _ string) (io.ReadCloser, bool, string, error) {
	answer, err := s.fleet.requestFromMember(ctx, s.of, s.path, s.query)
	if err != nil {
		return nil, false, "", err
	}
	body := &truncationTrackingBody{ReadCloser: answer.Body, ctx: ctx}
	if s.follow {
		return &followedLogBody{truncationTrackingBody: body}, true, "text/plain", nil
	}
	return body, false, "text/plain", nil
}

// podConnectStorage is a subresource that connects to a pod, as the user.
type podConnectStorage struct {
	connector
	pods *objectStorage
	name string // of the subresource
	// lacks is the missing part of a pod that runs nowhere, for the error.
	lacks string
	// may is called with the verb create, whatever the method; nil: no check.
	may authorizer.Authorizer
}

// Connect connects to a pod.
func (c *podConnectStorage) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	if c.may != nil {
		if err := authorizeConnectCreate(ctx, c.may); err != nil {
			return nil, err
		}
	}
	pod, as := name, func(object string) string { return object }
	if c.name == "proxy" {
		pod, as = splitProxyPodName(name)
	}
	m, object, err := c.pods.findMemberOfPod(ctx, pod, c.lacks, true)
	if err != nil {
		return nil, err
	}
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	namespace := request.NamespaceValue(ctx)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, rest, ok := strings.Cut(r.URL.EscapedPath(), c.pods.kind.memberPath(namespace, name)+"/"+c.name)
		if !ok || rest != "" && rest[0] != '/' {
			responder.Error(apierrors.NewBadRequest("a pod is connected to at its plain path"))
			return
		}
		c.pods.fleet.o.Reach.ServeAs(w, r, u, m.Cluster, c.pods.kind.memberPath(namespace, as(object))+"/"+c.name, rest)
	}), nil
}

// splitProxyPodName takes a pod's name out of the name in a proxy request, [SCHEME:]NAME[:PORT], and
// returns the same for the pod of another name.
func splitProxyPodName(name string) (pod string, as func(string) string) {
	scheme, pod, port, ok := utilnet.SplitSchemeNamePort(name)
	if !ok || scheme == "" && port == "" {
		return name, func(object string) string { return object }
	}
	return pod, func(object string) string { return utilnet.JoinSchemeNamePort(scheme, object, port) }
}

// authorizeConnectCreate checks whether the user may create the subresource: a connection is upgraded by GET too.
func authorizeConnectCreate(ctx context.Context, a authorizer.Authorizer) error {
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	switch decision, why, err := a.Authorize(ctx, createAttributes{attributes}); {
	case err != nil:
		return apierrors.NewInternalError(err)
	case decision != authorizer.DecisionAllow:
		return apierrors.NewForbidden(api.Resource(attributes.GetResource()+"/"+attributes.GetSubresource()), attributes.GetName(),
			fmt.Errorf("connecting to it needs the verb create: %s", why))
	}
	return nil
}

// createAttributes is a request as one that creates.
type createAttributes struct{ authorizer.Attributes }

// GetVerb is create.
func (createAttributes) GetVerb() string { return "create" }
