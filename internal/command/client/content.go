package client

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// keyed is all that ItemKeys takes out of an item: what it holds stays packed.
type keyed struct {
	Key atoll.ItemKey `json:"key"`
}

// ItemKeys returns the items of a Revision, sorted. It decodes only the names of Secrets. When the
// user may not read even those, they are left out, and hidden names the reason.
func ItemKeys(ctx context.Context, c *Connection, revision string) (keys []atoll.ItemKey, hidden, err error) {
	r, err := Get[enginev1.Revision](ctx, c, Revisions, "", revision)
	if err != nil {
		return nil, nil, fmt.Errorf("read revision %s: %w", revision, err)
	}
	var content struct {
		Items []keyed `json:"items"`
	}
	if err := decodeContent(r.Spec.Content, &content); err != nil {
		return nil, nil, fmt.Errorf("revision %s: %w", revision, err)
	}
	items := content.Items
	for _, p := range r.Spec.Parts {
		data, err := readPart(ctx, c, p)
		if p.Secret && apierrors.IsForbidden(err) {
			hidden = err
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("part %s of revision %s: %w", p.Name, revision, err)
		}
		var more []keyed
		if err := decodeContent(data, &more); err != nil {
			return nil, nil, fmt.Errorf("part %s of revision %s: %w", p.Name, revision, err)
		}
		items = append(items, more...)
	}
	keys = make([]atoll.ItemKey, len(items))
	for i, item := range items {
		keys[i] = item.Key
	}
	slices.SortFunc(keys, func(a, b atoll.ItemKey) int { return cmp.Compare(a.String(), b.String()) })
	return keys, hidden, nil
}

func readPart(ctx context.Context, c *Connection, p enginev1.PartRef) ([]byte, error) {
	if p.Secret {
		s, err := Get[corev1.Secret](ctx, c, Secrets, atoll.SystemNamespace, p.Name)
		if err != nil {
			return nil, err
		}
		return s.Data["data"], nil
	}
	part, err := Get[enginev1.RevisionPart](ctx, c, RevisionParts, "", p.Name)
	if err != nil {
		return nil, err
	}
	return part.Data, nil
}

func decodeContent(data []byte, v any) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return json.NewDecoder(r).Decode(v)
}
