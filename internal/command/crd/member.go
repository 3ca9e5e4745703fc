package crd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/phrase"
)

// definitionsPerPage of a list: a definition can be over 1 MiB.
const definitionsPerPage = 25

// memberReader reads definitions of one member. It is for one goroutine.
type memberReader struct {
	cluster string
	member  *client.Connection
	listed  []definition
	isRead  bool
}

// findNamed returns the definitions that the names name, each once, in the order of the names.
func (r *memberReader) findNamed(ctx context.Context, names []string) (out []definition, err error) {
	for _, name := range names {
		var d definition
		if _, group, full := strings.Cut(strings.ToLower(name), "."); full && atoll.IsOwnMetadataKey(group+"/") {
			return nil, fmt.Errorf("%s: %w", name, errHubOwned)
		} else if full {
			d, err = r.get(ctx, strings.ToLower(name))
		} else if err = r.readAll(ctx); err == nil {
			d, err = findShortName(r.listed, r.cluster, name)
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(o definition) bool { return o.fullName() == d.fullName() }) {
			out = append(out, d)
		}
	}
	return out, nil
}

// findGroup returns all definitions of a group; empty: all that there are.
func (r *memberReader) findGroup(ctx context.Context, group string) ([]definition, error) {
	if err := r.readAll(ctx); err != nil {
		return nil, err
	}
	found := slices.Clone(r.listed)
	if group != "" {
		found = slices.DeleteFunc(found, func(d definition) bool { return d.spec.Group != group })
	}
	switch {
	case len(found) > 0:
		return found, nil
	case group != "":
		return nil, fmt.Errorf("%s has no definition of the group %q", r.cluster, group)
	}
	return nil, fmt.Errorf("%s has no definitions", r.cluster)
}

// findShortName returns the one definition that has the resource, kind or short name.
func findShortName(all []definition, cluster, name string) (definition, error) {
	var found []definition
	var names []string
	for _, d := range all {
		if d.isCalled(name) {
			found, names = append(found, d), append(names, d.fullName())
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return definition{}, fmt.Errorf("%s has no definition with the resource or kind %q: atoll crd pull %s --all --dry-run lists those that it has", cluster, name, cluster)
	}
	return definition{}, fmt.Errorf("%s has %s with the name %q: give one of %s", cluster, phrase.CountNoun(len(found), "definition"), name, strings.Join(names, ", "))
}

func (r *memberReader) get(ctx context.Context, name string) (definition, error) {
	o, err := r.member.Dynamic.Resource(definitionResource).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !isUnknownCluster(err) {
		return definition{}, fmt.Errorf("%s has no definition %q: atoll crd pull %s --all --dry-run lists those that it has", r.cluster, name, r.cluster)
	}
	if err != nil {
		return definition{}, r.explainReadError(err)
	}
	d, err := readDefinition(o)
	if err == nil && d.fullName() != name {
		err = fmt.Errorf("answered with the definition %q in place of %q", d.fullName(), name)
	}
	if err != nil {
		return definition{}, fmt.Errorf("%s %w", r.cluster, err)
	}
	return d, nil
}

// readAll lists all definitions, once.
func (r *memberReader) readAll(ctx context.Context) error {
	if r.isRead {
		return nil
	}
	o := metav1.ListOptions{Limit: definitionsPerPage}
	for {
		page, err := r.member.Dynamic.Resource(definitionResource).List(ctx, o)
		if err != nil {
			return r.explainReadError(err)
		}
		for i := range page.Items {
			d, err := readDefinition(&page.Items[i])
			if err != nil {
				return fmt.Errorf("%s %w", r.cluster, err)
			}
			r.listed = append(r.listed, d)
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			r.isRead = true
			return nil
		}
	}
}

// explainReadError names what the error is of. The hub's proxy has named the cluster in its own errors.
func (r *memberReader) explainReadError(err error) error {
	if isUnknownCluster(err) {
		return fmt.Errorf("the hub has no cluster %q: atoll get clusters lists them", r.cluster)
	}
	return fmt.Errorf("read the definitions of %s: %w", r.cluster, r.member.ExplainError(err))
}

// isUnknownCluster reports whether the hub answers that it has no such cluster, in place of the cluster.
func isUnknownCluster(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	details := status.Status().Details
	return details.Group == v1alpha1.GroupVersion.Group && details.Kind == "clusters"
}
