package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/live"
)

// Name of the plugin.
const Name = "Atoll"

// Hub is what admission asks of the rest of the hub.
type Hub interface {
	// Holds tells whether the object is placed, or needed by something that is.
	Holds(sub claim.Subject) bool
	// Carries tells whether an object, if it is placed, can be sent: nil, or why it is
	// too large.
	Carries(t *unstructured.Unstructured) error
	// Protected names an object in the namespace that may not be deleted.
	Protected(namespace string) (atoll.ItemKey, bool)
	// ProtectedKind names an object of the kind that may not be deleted.
	ProtectedKind(kind schema.GroupKind) (atoll.ItemKey, bool)
	// Kinds lists the kinds that objects in the namespace are of.
	Kinds(namespace string) []schema.GroupKind
	// Divided names an object that the selectors choose and whose replicas its
	// placement divides. An empty namespace means any.
	Divided(namespace string, selectors []v1alpha1.ResourceSelector) (atoll.ItemKey, bool)
}

// Options of the plugin.
type Options struct {
	// Own tells the hub's own identities. Required.
	Own func(user.Info) bool
	// Hub gives the rest of the hub, false until it is there. Required.
	Hub func() (Hub, bool)
	// Properties that the hub's admin listed, of those that agents report; nil: none.
	Properties func() []string
	// Sets gives the table of ClusterSets, false until it is there. nil: never.
	Sets func() (Sets, bool)
	// CleanPlan gives the hash of what a cluster would lose that is cleaned, "" for nothing; an
	// error where that is not known. Required.
	CleanPlan func(ctx context.Context, c *v1alpha1.Cluster) (string, error)
	// Foretell what a dry run of a policy would change; nil: nobody does.
	Foretell Foretell
	// Clock for the times that taints were added and removals asked for; default: the real one.
	Clock clock.PassiveClock
}

// Plugin is Atoll's admission.
type Plugin struct {
	*admission.Handler
	Options
	authorizer authorizer.Authorizer
	mapper     meta.RESTMapper
}

var (
	_ admission.MutationInterface       = &Plugin{}
	_ admission.ValidationInterface     = &Plugin{}
	_ initializer.WantsAuthorizer       = &Plugin{}
	_ initializer.WantsRESTMapper       = &Plugin{}
	_ admission.InitializationValidator = &Plugin{}
)

// New makes the plugin. The API server gives it its authorizer and REST mapper.
func New(o Options) *Plugin {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete), Options: o}
}

// SetAuthorizer is for the API server.
func (p *Plugin) SetAuthorizer(a authorizer.Authorizer) { p.authorizer = a }

// SetRESTMapper is for the API server.
func (p *Plugin) SetRESTMapper(m meta.RESTMapper) { p.mapper = m }

// ValidateInitialization tells whether the API server gave all that is needed.
func (p *Plugin) ValidateInitialization() error {
	if p.authorizer == nil || p.mapper == nil {
		return errors.New("admission: the API server gave no authorizer or no REST mapper")
	}
	return nil
}

// Admit fills in what users need not write.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if live.IsMarked(ctx) {
		return nil // it is the member's, and no template
	}
	if a.GetSubresource() != "" || a.GetOperation() == admission.Delete || a.GetObject() == nil {
		return nil
	}
	switch a.GetKind().Group {
	case v1alpha1.GroupVersion.Group:
		if a.GetKind().Kind == "Cluster" {
			if err := p.removalAsked(a); err != nil {
				return err
			}
			return p.taintTimes(a)
		}
		return nil
	case engineGroup:
		return nil
	}
	return p.hold(a)
}

// Validate refuses what could not be honoured, and what the writer may not do. The dry
// run of a policy that passes says what would change.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if live.IsMarked(ctx) {
		return nil
	}
	if err := p.validate(ctx, a, o); err != nil {
		return err
	}
	p.foretell(ctx, a)
	return nil
}

func (p *Plugin) validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p.Own(a.GetUserInfo()) && !collects(a) {
		return nil
	}
	if slices.Contains(a.GetUserInfo().GetGroups(), atoll.GroupAgents) && !ownReview(a) {
		return admission.NewForbidden(a, errors.New("agents write nothing on the hub: they report over their stream"))
	}
	if a.GetOperation() == admission.Delete {
		return p.validateDelete(ctx, a)
	}
	if a.GetKind().Group == engineGroup || isBundle(a) || isDecision(a) {
		return p.validateEngine(ctx, a)
	}
	if err := p.validateAnnotation(ctx, a); err != nil {
		return err // also through a subresource, since some let annotations be written
	}
	if a.GetSubresource() == "approval" {
		return p.validateApproval(ctx, a)
	}
	if a.GetSubresource() != "" {
		return nil
	}
	if !atoll.OwnKind(a.GetKind().GroupKind()) {
		return p.validateSize(a, o)
	}
	return p.validateOurs(ctx, a)
}

// validateOurs is for what people write of the hub's own kinds.
func (p *Plugin) validateOurs(ctx context.Context, a admission.Attributes) error {
	switch a.GetKind().Kind {
	case "Cluster":
		return p.validateCluster(ctx, a)
	case "PropagationPolicy", "ClusterPropagationPolicy":
		return p.validatePropagation(ctx, a)
	case "Placement", "ClusterPlacement":
		return p.validatePlacement(a)
	case "OverridePolicy", "ClusterOverridePolicy":
		return p.validateOverride(ctx, a)
	case "ResourceInterpreter":
		return validateInterpreter(a)
	case karmada.CustomizationKind:
		return validateCustomization(a)
	case "ClusterSet":
		return p.validateSet(ctx, a)
	case "ClusterSetBinding":
		return p.validateBinding(ctx, a)
	}
	return nil
}

// ownReview tells of requests that store nothing, such as a review of what the
// caller itself may do.
func ownReview(a admission.Attributes) bool {
	g := a.GetKind().Group
	return g == "authorization.k8s.io" || g == "authentication.k8s.io"
}

// typed reads the object, and on update the one before, as T.
func typed[T any](a admission.Attributes) (now, before *T, err error) {
	if now, err = as[T](a.GetObject()); err != nil {
		return nil, nil, admission.NewForbidden(a, err)
	}
	if a.GetOperation() != admission.Update {
		return now, nil, nil
	}
	if before, err = as[T](a.GetOldObject()); err != nil {
		return nil, nil, admission.NewForbidden(a, err)
	}
	return now, before, nil
}

func as[T any](obj runtime.Object) (*T, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("custom resource has type %T", obj)
	}
	var t T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &t); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	return &t, nil
}

// metas gives the metadata of the object and, on update, of the one before.
func metas(a admission.Attributes) (now, before metav1.Object, err error) {
	if now, err = meta.Accessor(a.GetObject()); err != nil {
		return nil, nil, admission.NewForbidden(a, err)
	}
	if a.GetOperation() != admission.Update || a.GetOldObject() == nil {
		return now, nil, nil
	}
	if before, err = meta.Accessor(a.GetOldObject()); err != nil {
		return nil, nil, admission.NewForbidden(a, err)
	}
	return now, before, nil
}
