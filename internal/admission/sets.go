package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/certificates"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policycheck"
	"atoll.dev/atoll/internal/trust/handshake"
)

// Sets is what admission reads about ClusterSets.
type Sets interface {
	// AllowedSets lists the sets that the namespace may place on.
	AllowedSets(namespace string) []string
	// OpenSets lists the sets that namespaces without bindings may place on.
	OpenSets() []string
	// HasUniversalSet reports whether one of the sets holds all clusters, those to come too.
	HasUniversalSet(sets []string) bool
	// OfCluster lists the sets of the cluster of that name.
	OfCluster(name string) []string
	// OfLabels lists the sets that a cluster with these labels would be in.
	OfLabels(labels map[string]string) []string
}

// The verbs on clustersets that only Atoll checks by RBAC.
const (
	// verbBind lets a namespace place on a set.
	verbBind = "bind"
	// verbManage lets edit the Clusters of a set and bring Clusters in and out.
	verbManage = "manage"
)

var clusterSets = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clustersets"}

// mayAccessClusterSet reports whether the user may do that with a set; with all sets if name is "".
func (p *AdmissionPlugin) mayAccessClusterSet(ctx context.Context, u user.Info, verb, name string) bool {
	return p.isAllowed(ctx, u, verb, requiredRead{resource: clusterSets, name: name})
}

// validateClusterSet refuses malformed sets. The selector of a set and its openness decide the rights of
// others, so setting them needs the right to manage all sets.
func (p *AdmissionPlugin) validateClusterSet(ctx context.Context, a admission.Attributes) error {
	now, before, err := typedObjects[v1alpha1.ClusterSet](a)
	if err != nil {
		return err
	}
	var errs field.ErrorList
	for _, msg := range validation.IsValidLabelValue(now.Name) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), now.Name, "is the value of a label: "+msg))
	}
	if s := now.Spec.ClusterSelector.LabelSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		errs = append(errs, policycheck.CheckLabelSelector(s, field.NewPath("spec", "clusterSelector", "labelSelector"))...)
	}
	if len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	if before != nil && apiequality.Semantic.DeepEqual(before.Spec, now.Spec) || p.mayAccessClusterSet(ctx, a.GetUserInfo(), verbManage, "") {
		return nil
	}
	return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("spec: what a set holds decides where others may place: the verb %s on all %s is needed, which %q lacks", verbManage, clusterSets, a.GetUserInfo().GetName()))
}

// validateSetBinding checks the rights of a binding's writer.
func (p *AdmissionPlugin) validateSetBinding(ctx context.Context, a admission.Attributes) error {
	now, _, err := typedObjects[v1alpha1.ClusterSetBinding](a)
	if err != nil || a.GetOperation() != admission.Create {
		return err // an update cannot name another set
	}
	set := now.Spec.ClusterSet
	for _, msg := range validation.IsValidLabelValue(set) {
		errs := field.ErrorList{field.Invalid(field.NewPath("spec", "clusterSet"), set, "is not the name of a ClusterSet: "+msg)}
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	if p.mayAccessClusterSet(ctx, a.GetUserInfo(), verbBind, set) {
		return nil
	}
	return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("spec.clusterSet: the verb %s on %s %q is needed, which %q lacks", verbBind, clusterSets, set, a.GetUserInfo().GetName()))
}

// validateRightToUnbindSet: taking a binding away needs the right that making it needs, and,
// since the last one of a namespace is what keeps it from the sets that are open, the
// right to bind those.
func (p *AdmissionPlugin) validateRightToUnbindSet(ctx context.Context, a admission.Attributes) error {
	binding, err := convertTo[v1alpha1.ClusterSetBinding](a.GetOldObject())
	if err != nil {
		return refuseRequest(a, atoll.ReasonUnreadable, err)
	}
	need := []string{binding.Spec.ClusterSet}
	if sets, known := p.currentSets(); known {
		need = append(need, sets.OpenSets()...)
	} else {
		need = append(need, "")
	}
	for _, set := range need {
		if !p.mayAccessClusterSet(ctx, a.GetUserInfo(), verbBind, set) {
			return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("without this binding namespace %q may place on other clusters: the verb %s on %s %s is needed, which %q lacks",
				a.GetNamespace(), verbBind, clusterSets, quoteSet(set), a.GetUserInfo().GetName()))
		}
	}
	return nil
}

func quoteSet(set string) string {
	if set == "" {
		return "(all)"
	}
	return fmt.Sprintf("%q", set)
}

// validateSetMembership: a writer of a Cluster must manage a set that it is in, and each set that the
// write brings it into or takes it out of.
func (p *AdmissionPlugin) validateSetMembership(ctx context.Context, a admission.Attributes, now, before *v1alpha1.Cluster) error {
	u := a.GetUserInfo()
	if p.mayAccessClusterSet(ctx, u, verbManage, "") {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("%s; the verb %s on %s is needed, which %q lacks", fmt.Sprintf(format, args...), verbManage, clusterSets, u.GetName()))
	}
	sets, known := p.currentSets()
	if !known {
		return refuse("the hub is starting up and has not read yet in which sets the Cluster is")
	}
	was, crossed := changedSetMembership(sets, now, before)
	may := func(set string) bool { return p.mayAccessClusterSet(ctx, u, verbManage, set) }
	if before != nil && !slices.ContainsFunc(was, may) {
		return refuse("the Cluster is in no set that %q manages", u.GetName())
	}
	if now == nil {
		return nil
	}
	for _, set := range crossed {
		if !may(set) {
			return refuse("metadata.labels: brings the Cluster into set %q or out of it", set)
		}
	}
	if before == nil && len(crossed) == 0 {
		return refuse("the Cluster is in no set that %q manages", u.GetName())
	}
	return nil
}

// changedSetMembership returns the sets of a Cluster before a write, and those that the write brings it into or takes
// it out of.
func changedSetMembership(sets Sets, now, before *v1alpha1.Cluster) (was, crossed []string) {
	var is []string
	var from, to string
	if before != nil {
		was, from = sets.OfLabels(before.Labels), before.Labels[v1alpha1.LabelClusterSet]
	}
	if now != nil {
		is, to = sets.OfLabels(now.Labels), now.Labels[v1alpha1.LabelClusterSet]
	}
	crossed = slices.DeleteFunc(slices.Concat(was, is), func(set string) bool { return slices.Contains(was, set) && slices.Contains(is, set) })
	if from != to { // of a set that is not there yet, too
		crossed = append(crossed, slices.DeleteFunc([]string{from, to}, func(set string) bool { return set == "" })...)
	}
	return was, crossed
}

// validateCertificateApproval: a user that answers an agent's certificate request must manage a set of the
// Cluster that the agent would speak for.
func (p *AdmissionPlugin) validateCertificateApproval(ctx context.Context, a admission.Attributes) error {
	request, ok := a.GetOldObject().(*certificates.CertificateSigningRequest)
	if !ok || request.Spec.SignerName != handshake.SignerName || p.mayAccessClusterSet(ctx, a.GetUserInfo(), verbManage, "") {
		return nil
	}
	name := request.Labels[handshake.LabelCluster]
	if sets, known := p.currentSets(); known && slices.ContainsFunc(sets.OfCluster(name), func(set string) bool { return p.mayAccessClusterSet(ctx, a.GetUserInfo(), verbManage, set) }) {
		return nil
	}
	return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("cluster %q, for which the agent would speak, is in no set that %q manages: the verb %s on %s is needed", name, a.GetUserInfo().GetName(), verbManage, clusterSets))
}

// validatePlacementReferences refuses a placement of a namespace on clusters that the namespace may not place on.
func (p *AdmissionPlugin) validatePlacementReferences(a admission.Attributes, now, before []placementReference, at *field.Path) error {
	if a.GetNamespace() == "" {
		return nil
	}
	if errs := p.checkPlacementReferences(a.GetNamespace(), now, before, at); len(errs) > 0 {
		return refuseRequest(a, atoll.ReasonOutsideBoundSets, errs.ToAggregate())
	}
	return nil
}

// checkPlacementReferences refuses names outside of the namespace's sets. Scheduling narrows the choice of
// selectors. Existing names are left to scheduling too: a cluster that left a set is no reason to
// refuse another edit.
func (p *AdmissionPlugin) checkPlacementReferences(namespace string, now, before []placementReference, at *field.Path) field.ErrorList {
	sets, known := p.currentSets()
	if !known || len(now) == 0 {
		return nil
	}
	bound := sets.AllowedSets(namespace)
	if sets.HasUniversalSet(bound) {
		return nil
	}
	had := map[string]bool{}
	for _, r := range before {
		had[r.kind+r.name] = true
	}
	var errs field.ErrorList
	for _, r := range now {
		if len(errs) == mostToldOf {
			return append(errs, field.Forbidden(at, "and more"))
		}
		if had[r.kind+r.name] {
			continue
		}
		if why := r.refusalOutsideSets(namespace, sets, bound); why != "" {
			errs = append(errs, field.Forbidden(cmp.Or(r.path, at), why))
		}
	}
	return errs
}

// refusalOutsideSets returns why a namespace that is bound to these sets may not place there; empty: it may. An
// existing cluster and a missing one get the same answer.
func (r placementReference) refusalOutsideSets(namespace string, sets Sets, bound []string) string {
	switch {
	case r.kind == reachAny && len(bound) == 0:
		return fmt.Sprintf("namespace %q may place on no cluster: it has no ClusterSetBinding, and no ClusterSet is open to namespaces without; ask a user that may bind one", namespace)
	case r.kind == reachSet && !slices.Contains(bound, r.name):
		return fmt.Sprintf("namespace %q may not place on cluster set %q, but on %s: a ClusterSetBinding is missing", namespace, r.name, joinSets(bound))
	case r.kind == reachCluster && !slices.ContainsFunc(sets.OfCluster(r.name), func(s string) bool { return slices.Contains(bound, s) }):
		return fmt.Sprintf("no cluster %q is in a cluster set that namespace %q may place on (%s)", r.name, namespace, joinSets(bound))
	}
	return ""
}

// mostToldOf that are out of reach: a placement may name 100,000 clusters.
const mostToldOf = 10

func joinSets(sets []string) string {
	if len(sets) == 0 {
		return "none"
	}
	return strings.Join(sets, ", ")
}

// placementReference is something that a placement names.
type placementReference struct {
	kind string
	name string
	path *field.Path
}

const (
	reachAny     = "any"      // any place at all
	reachSet     = "set/"     // a ClusterSet
	reachCluster = "cluster/" // a Cluster
)

// placementReferences returns the reach of a placement: any place, and all that it names but what it excludes.
func placementReferences(pl *v1alpha1.PlacementSpec, at *field.Path) []placementReference {
	return append([]placementReference{{kind: reachAny}}, findPlacementReferences(reflect.ValueOf(pl), at)...)
}

// ruleReferences is what override rules name.
func ruleReferences(rules []v1alpha1.RuleWithCluster, at *field.Path) []placementReference {
	return findPlacementReferences(reflect.ValueOf(rules), at)
}

// findPlacementReferences finds what is named anywhere in a value, by what the fields are called, so that
// a field which comes later is not forgotten here.
func findPlacementReferences(v reflect.Value, at *field.Path) (out []placementReference) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return findPlacementReferences(v.Elem(), at)
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, findPlacementReferences(v.Index(i), at.Index(i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			in := at
			if name != "" {
				in = at.Child(name)
			}
			kind, isName := map[string]string{"clusterNames": reachCluster, "clusterSets": reachSet}[name]
			if !isName {
				out = append(out, findPlacementReferences(v.Field(i), in)...)
				continue
			}
			for j := range v.Field(i).Len() {
				out = append(out, placementReference{kind: kind, name: v.Field(i).Index(j).String(), path: in.Index(j)})
			}
		}
	}
	return out
}

// checkMayPlaceClusterScoped: what is in no namespace is limited by no set, so that its annotation
// needs the right that a cluster policy needs.
func (p *AdmissionPlugin) checkMayPlaceClusterScoped(ctx context.Context, u user.Info) error {
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusterpropagationpolicies"}
	if p.isAllowed(ctx, u, "create", requiredRead{resource: resource}) {
		return nil
	}
	return fmt.Errorf("placing what is in no namespace needs the right to create %s, which %q lacks", resource, u.GetName())
}

var errDefaultSet = errors.New("the set " + v1alpha1.DefaultClusterSet + " is the hub's switch between permissive and strict: to forbid namespaces without a binding to place, set spec.unboundNamespaces to Deny instead")
