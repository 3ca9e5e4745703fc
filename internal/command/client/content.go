package client

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// keyed is all that ItemKeys takes out of an item: what it holds stays packed.
type keyed struct {
	Key atoll.ItemKey `json:"key"`
}

// ItemKeys lists what a Revision holds, sorted. Of Secrets it decodes the names
// only.
func ItemKeys(ctx context.Context, c *Cluster, revision string) ([]atoll.ItemKey, error) {
	r, err := Get[enginev1.Revision](ctx, c, Revisions, "", revision)
	if err != nil {
		return nil, fmt.Errorf("read revision %s: %w", revision, err)
	}
	var content struct {
		Items []keyed `json:"items"`
	}
	if err := unpack(r.Spec.Content, &content); err != nil {
		return nil, fmt.Errorf("revision %s: %w", revision, err)
	}
	items := content.Items
	for _, p := range r.Spec.Parts {
		data, err := readPart(ctx, c, p)
		if err != nil {
			return nil, fmt.Errorf("part %s of revision %s: %w", p.Name, revision, err)
		}
		var more []keyed
		if err := unpack(data, &more); err != nil {
			return nil, fmt.Errorf("part %s of revision %s: %w", p.Name, revision, err)
		}
		items = append(items, more...)
	}
	keys := make([]atoll.ItemKey, len(items))
	for i, item := range items {
		keys[i] = item.Key
	}
	slices.SortFunc(keys, func(a, b atoll.ItemKey) int { return cmp.Compare(a.String(), b.String()) })
	return keys, nil
}

func readPart(ctx context.Context, c *Cluster, p enginev1.PartRef) ([]byte, error) {
	if p.Secret {
		s, err := c.Kube.CoreV1().Secrets(atoll.SystemNamespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return nil, c.Explain(err)
		}
		return s.Data["data"], nil
	}
	part, err := Get[enginev1.RevisionPart](ctx, c, RevisionParts, "", p.Name)
	if err != nil {
		return nil, err
	}
	return part.Data, nil
}

func unpack(data []byte, v any) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return json.NewDecoder(r).Decode(v)
}
