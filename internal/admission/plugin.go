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
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
)

// Name of the plugin.
const Name = "Atoll"

// Options of the plugin.
type Options struct {
	// Own reports whether a user is one of the hub's own identities. Required.
	Own func(user.Info) bool
	// Hub gives the rest of the hub, false until it is there; nil: never.
	Hub func() (Hub, bool)
	// Foretell plans the dry run of a policy; nil: there is no plan.
	Foretell Foretell
	// Foreign finds what keeps a namespace in members; nil: nothing is found.
	Foreign FindForeign
	// Clock for the times that taints were added and removals requested; default: the real one.
	Clock clock.PassiveClock
}

// AdmissionPlugin is Atoll's admission.
type AdmissionPlugin struct {
	*admission.Handler
	Options
	authorizer authorizer.Authorizer
	mapper     meta.RESTMapper
}

var (
	_ admission.MutationInterface       = &AdmissionPlugin{}
	_ admission.ValidationInterface     = &AdmissionPlugin{}
	_ initializer.WantsAuthorizer       = &AdmissionPlugin{}
	_ initializer.WantsRESTMapper       = &AdmissionPlugin{}
	_ admission.InitializationValidator = &AdmissionPlugin{}
)

// New makes the plugin. The API server gives it its authorizer and REST mapper.
func New(o Options) *AdmissionPlugin {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &AdmissionPlugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete), Options: o}
}

// SetAuthorizer is for the API server.
func (p *AdmissionPlugin) SetAuthorizer(a authorizer.Authorizer) { p.authorizer = a }

// SetRESTMapper is for the API server.
func (p *AdmissionPlugin) SetRESTMapper(m meta.RESTMapper) { p.mapper = m }

// ValidateInitialization reports whether the API server gave all that is needed.
func (p *AdmissionPlugin) ValidateInitialization() error {
	if p.authorizer == nil || p.mapper == nil {
		return errors.New("admission: the API server gave no authorizer or no REST mapper")
	}
	return nil
}

// Admit fills in what users need not write.
func (p *AdmissionPlugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if fleetview.IsMemberWrite(ctx) {
		return nil // it is the member's, and no template
	}
	if a.GetSubresource() != "" || a.GetOperation() == admission.Delete || a.GetObject() == nil {
		return nil
	}
	if a.GetKind().GroupKind() == v1alpha1.GroupVersion.WithKind("Cluster").GroupKind() {
		p.stampRemovalTime(a)
		return p.stampTaintTimes(a)
	}
	if isHubSettings(a) {
		p.stampFreezeAuthor(a)
	}
	if isBundle(a) {
		p.stampRolloutAuthor(a)
		if err := p.stampDriftApprover(a); err != nil {
			return err
		}
	}
	p.keepOnHub(ctx, a)
	return p.ensureTemplateFinalizer(a)
}

// Validate refuses what could not be honoured, and what the writer may not do. The dry run of a
// policy that passes shows what would change.
func (p *AdmissionPlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if fleetview.IsMemberWrite(ctx) {
		return nil
	}
	if err := p.validate(ctx, a, o); err != nil {
		return err
	}
	p.warnWithDryRunPlan(ctx, a)
	p.warnOfUnplaced(ctx, a)
	p.warnOfTwoControllers(ctx, a)
	p.warnOfReferrers(ctx, a)
	p.warnOfForeign(ctx, a)
	p.warnOfUnreadAnnotations(ctx, a)
	return nil
}

func (p *AdmissionPlugin) validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p.Own(a.GetUserInfo()) && !isGarbageCollection(a) {
		return nil
	}
	if slices.Contains(a.GetUserInfo().GetGroups(), atoll.GroupAgents) && !isAuthReview(a) {
		return refuseRequest(a, atoll.ReasonWrittenByAgent, errors.New("agents write nothing on the hub: they report over their stream"))
	}
	if a.GetOperation() == admission.Delete {
		return p.validateDelete(ctx, a)
	}
	return p.validateWrite(ctx, a, o)
}

// validateWrite is for what users create and update.
func (p *AdmissionPlugin) validateWrite(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := p.refuseEscalationInSystemNamespace(ctx, a); err != nil {
		return err
	}
	if isHubWrittenKind(a) {
		return p.validateHubWrittenKinds(ctx, a)
	}
	if err := p.validateAnnotations(ctx, a); err != nil {
		return err // also through a subresource, since some let annotations be written
	}
	if a.GetSubresource() == "approval" {
		return p.validateCertificateApproval(ctx, a)
	}
	if a.GetSubresource() != "" {
		return nil
	}
	if !atoll.IsHubOwnedKind(a.GetKind().GroupKind()) {
		return p.validatePlacedTemplateSize(a, o)
	}
	return p.validateAtollKinds(ctx, a)
}

// validateAnnotations checks the annotations and labels by which Atoll treats an object.
func (p *AdmissionPlugin) validateAnnotations(ctx context.Context, a admission.Attributes) error {
	if err := p.validateClustersAnnotation(ctx, a); err != nil {
		return err
	}
	if err := validateAtollKeys(a); err != nil {
		return err
	}
	return p.validateConflictAnnotationRight(ctx, a)
}

// validateAtollKinds is for what people write of the hub's own kinds.
func (p *AdmissionPlugin) validateAtollKinds(ctx context.Context, a admission.Attributes) error {
	switch a.GetKind().Kind {
	case "Cluster":
		return p.validateCluster(ctx, a)
	case "PropagationPolicy", "ClusterPropagationPolicy":
		return p.validatePropagation(ctx, a)
	case "Placement", "ClusterPlacement":
		return p.validatePlacement(a)
	case v1alpha1.KindRolloutStrategy, v1alpha1.KindClusterRolloutStrategy:
		return p.validateStrategy(ctx, a)
	case "OverridePolicy", "ClusterOverridePolicy":
		return p.validateOverride(ctx, a)
	case "ResourceInterpreter":
		return validateInterpreter(a)
	case karmada.CustomizationKind:
		return validateKarmadaCustomization(a)
	case "Repository", "Source", "SourceSet", "Notification":
		return p.validateOutsideKinds(ctx, a)
	case "ClusterSet":
		return p.validateClusterSet(ctx, a)
	case "ClusterSetBinding":
		return p.validateSetBinding(ctx, a)
	case hubSettingsKind:
		return p.validateFreeze(ctx, a)
	}
	return nil
}

// validateOutsideKinds is for the kinds by which users let the hub connect to servers.
func (p *AdmissionPlugin) validateOutsideKinds(ctx context.Context, a admission.Attributes) error {
	switch a.GetKind().Kind {
	case "Repository":
		return p.validateRepository(ctx, a)
	case "Source":
		return p.validateSource(ctx, a)
	case "SourceSet":
		return p.validateSourceSet(ctx, a)
	}
	return p.validateNotification(ctx, a)
}

// isAuthReview reports whether a request stores nothing, such as a review of what the
// caller itself may do.
func isAuthReview(a admission.Attributes) bool {
	g := a.GetKind().Group
	return g == "authorization.k8s.io" || g == "authentication.k8s.io"
}

// typedObjects reads the object, and on update the one before, as T.
func typedObjects[T any](a admission.Attributes) (now, before *T, err error) {
	if now, err = convertTo[T](a.GetObject()); err != nil {
		return nil, nil, refuseRequest(a, atoll.ReasonUnreadable, err)
	}
	if a.GetOperation() != admission.Update {
		return now, nil, nil
	}
	if before, err = convertTo[T](a.GetOldObject()); err != nil {
		return nil, nil, refuseRequest(a, atoll.ReasonUnreadable, err)
	}
	return now, before, nil
}

func convertTo[T any](obj runtime.Object) (*T, error) {
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

// objectMetas returns the metadata of the object and, on update, of the one before.
func objectMetas(a admission.Attributes) (now, before metav1.Object, err error) {
	if now, err = meta.Accessor(a.GetObject()); err != nil {
		return nil, nil, refuseRequest(a, atoll.ReasonUnreadable, err)
	}
	if a.GetOperation() != admission.Update || a.GetOldObject() == nil {
		return now, nil, nil
	}
	if before, err = meta.Accessor(a.GetOldObject()); err != nil {
		return nil, nil, refuseRequest(a, atoll.ReasonUnreadable, err)
	}
	return now, before, nil
}
