package client

import (
	"context"
	"fmt"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// FindBundle returns the Bundle that an argument names, or that places the template that it names, as a Bundle or a
// ClusterBundle alike.
func FindBundle(ctx context.Context, c *Connection, argument string) (*v1alpha1.Bundle, Object, error) {
	of, err := c.ParseObject(ctx, argument)
	if err != nil {
		return nil, of, err
	}
	if of.Resource != Bundles && of.Resource != ClusterBundles {
		if of, err = bundleOfTemplate(ctx, c, argument, of); err != nil {
			return nil, of, err
		}
	}
	bundle, err := Get[v1alpha1.Bundle](ctx, c, of.Resource, of.Namespace, of.Name)
	return bundle, of, err
}

// explainedBundles is what the command reads of an explanation.
type explainedBundles struct {
	Bundles []struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"bundles"`
}

// bundleOfTemplate returns the Bundle that places a template.
func bundleOfTemplate(ctx context.Context, c *Connection, argument string, template Object) (Object, error) {
	var found explainedBundles
	if err := c.DecodeAnswer(c.RequestAbout(atoll.ExplainPath, template).Do(ctx), "what is no JSON", &found); err != nil {
		return Object{}, fmt.Errorf("find the Bundle of %s: %w", argument, err)
	}
	if len(found.Bundles) != 1 {
		return Object{}, fmt.Errorf("%s is in %d Bundles: name one as bundle/NAME; `atoll explain %s` lists them", argument, len(found.Bundles), argument)
	}
	of := Object{Resource: Bundles, Namespace: found.Bundles[0].Namespace, Name: found.Bundles[0].Name}
	if of.Namespace == "" {
		of.Resource = ClusterBundles
	}
	return of, nil
}
