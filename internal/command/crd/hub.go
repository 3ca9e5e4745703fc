package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/objectdiff"
)

// hubWriter offers templates to the hub and writes them.
type hubWriter struct {
	hub *client.Connection
	// dry is the client of dry runs.
	dry   dynamic.Interface
	force bool
}

// pulled is what becomes of one definition. The error is why it is not written.
type pulled struct {
	definition definition
	template   *unstructured.Unstructured
	leftOut    []string
	// live is the hub's definition, nil without one; after is what the hub would have.
	live, after *unstructured.Unstructured
	err         error
}

// offerDefinition requests from the hub, by a dry run, what would become of the definition.
func (w *hubWriter) offerDefinition(ctx context.Context, d definition) (p pulled) {
	p = pulled{definition: d}
	p.template, p.leftOut = d.buildTemplate()
	if d.isHubOwned() {
		p.err = errHubOwned
		return p
	}
	live, err := w.dry.Resource(definitionResource).Get(ctx, d.fullName(), metav1.GetOptions{})
	switch {
	case client.IsGone(err):
		p.after, p.err = w.apply(ctx, w.dry, &p, w.force, metav1.DryRunAll)
		return p
	case err != nil:
		p.err = fmt.Errorf("read it on the hub: %w", w.hub.ExplainError(err))
		return p
	}
	p.live = live
	p.err = w.offerChange(ctx, &p)
	return p
}

// offerChange offers the template of a definition that the hub has.
func (w *hubWriter) offerChange(ctx context.Context, p *pulled) (err error) {
	switch {
	case isManagedBy(p.live, atoll.HubFieldManager):
		return errHubOwned
	case p.live.GetDeletionTimestamp() != nil:
		return errors.New("the hub's definition is being deleted: pull it again when it is gone")
	}
	ours := isManagedBy(p.live, atoll.CLIFieldManager)
	if !ours && !w.force {
		return w.compareWithForeign(ctx, p)
	}
	p.adaptToLive(w.force)
	if p.after, err = w.apply(ctx, w.dry, p, w.force, metav1.DryRunAll); err != nil {
		return err
	}
	if keepsConversion(p.live) && !keepsConversion(p.after) {
		return fmt.Errorf("the hub keeps a conversion webhook for clusters, which another writer stated and this would remove (annotation %s); --force takes the webhook over as it is", atoll.AnnotationConversion)
	}
	return nil
}

// compareWithForeign returns an error where the hub's definition, which others wrote, differs.
func (w *hubWriter) compareWithForeign(ctx context.Context, p *pulled) error {
	annotations := p.template.GetAnnotations()
	delete(annotations, atoll.AnnotationConflict)
	p.template.SetAnnotations(annotations)
	after, err := w.apply(ctx, w.dry, p, true, metav1.DryRunAll)
	if err != nil {
		return err
	}
	after.SetAnnotations(withConversionOf(after.GetAnnotations(), p.live))
	if paths := changedPaths(p.live, after); len(paths) > 0 {
		return fmt.Errorf("the hub has another definition of this name, which this command did not write; it differs at %s; --force takes these fields over", namePathManagers(paths, p.live))
	}
	p.after = p.live
	return nil
}

// withConversionOf returns the annotations with the conversion that the hub keeps of the live definition,
// which is no difference to a template that states none.
func withConversionOf(annotations map[string]string, live *unstructured.Unstructured) map[string]string {
	kept, has := live.GetAnnotations()[atoll.AnnotationConversion]
	if !has {
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[atoll.AnnotationConversion] = kept
	return annotations
}

// adaptToLive leaves to the hub's definition what people stated there: its own resolution of conflicts, and
// a conversion webhook for clusters, which is taken over with force or when it is the command's already.
func (p *pulled) adaptToLive(force bool) {
	annotations := p.template.GetAnnotations()
	if stated, has := p.live.GetAnnotations()[atoll.AnnotationConflict]; has && stated != annotations[atoll.AnnotationConflict] {
		delete(annotations, atoll.AnnotationConflict)
		p.template.SetAnnotations(annotations)
	}
	if !force && !slices.Contains(objectdiff.ManagersOf(p.live).OfField("/spec/conversion"), atoll.CLIFieldManager) {
		return
	}
	var conversion map[string]any
	if json.Unmarshal([]byte(p.live.GetAnnotations()[atoll.AnnotationConversion]), &conversion) == nil {
		_ = unstructured.SetNestedMap(p.template.Object, conversion, "spec", "conversion") // spec is a map
	}
}

// write applies what was offered.
func (w *hubWriter) write(ctx context.Context, p *pulled) error {
	_, err := w.apply(ctx, w.hub.Dynamic, p, w.force)
	return err
}

func (w *hubWriter) apply(ctx context.Context, c dynamic.Interface, p *pulled, force bool, dryRun ...string) (*unstructured.Unstructured, error) {
	after, err := c.Resource(definitionResource).Apply(ctx, p.template.GetName(), p.template, metav1.ApplyOptions{FieldManager: atoll.CLIFieldManager, Force: force, DryRun: dryRun})
	if err != nil {
		return nil, w.explainWriteError(p, err)
	}
	return after, nil
}

// explainWriteError adds what to do about the hub's refusal.
func (w *hubWriter) explainWriteError(p *pulled, err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return w.hub.ExplainError(err)
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		switch {
		case cause.Type == metav1.CauseTypeFieldManagerConflict:
			manager, _, _ := strings.Cut(strings.TrimPrefix(cause.Message, "conflict with "), " using ")
			fields = append(fields, cause.Field+" ("+strings.Trim(manager, `"`)+")")
		case strings.HasPrefix(cause.Field, "status.storedVersions"):
			return fmt.Errorf("the hub may have stored objects in a version that the cluster's definition lacks: %s; "+
				"write the objects again in a version that stays, list the versions that stay by "+
				"kubectl patch crd %s --subresource=status --type=merge -p '{\"status\":{\"storedVersions\":[%q]}}', and pull again: %w",
				cause.Message, p.definition.fullName(), p.storedVersion(), err)
		}
	}
	if len(fields) > 0 {
		return fmt.Errorf("others changed it on the hub at %s; --force takes these fields over", strings.Join(fields, ", "))
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("administrators of the hub write definitions: %w", err)
	}
	return w.hub.ExplainError(err)
}

// storedVersion returns the version in which the new definition stores objects.
func (p *pulled) storedVersion() string {
	stored := ""
	for _, v := range p.definition.spec.Versions {
		if v.Storage {
			stored = v.Name
		}
	}
	return stored
}

// errHubOwned is the error of a definition that no user writes.
var errHubOwned = errors.New("the hub brings this definition itself, and no other takes its place")

// isManagedBy reports whether the manager applied fields of the object.
func isManagedBy(o *unstructured.Unstructured, manager string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == manager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == ""
	})
}

// keepsConversion reports whether the hub keeps a conversion webhook of a definition, for members or, where
// the definition acts on the hub, for itself.
func keepsConversion(o *unstructured.Unstructured) bool {
	strategy, _, _ := unstructured.NestedString(o.Object, "spec", "conversion", "strategy")
	_, kept := o.GetAnnotations()[atoll.AnnotationConversion]
	return kept || strategy == string(apiextensionsv1.WebhookConverter)
}
