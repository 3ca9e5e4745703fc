package atoll_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func TestContentIdentityLeavesSourceOut(t *testing.T) {
	content := atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"},
		UID: "u1", Object: json.RawMessage(`{"a":1}`), Hash: "h", SourceFingerprint: "first",
	}}}
	before := atoll.EncodeContentIdentity(&content)
	content.Items[0].SourceFingerprint = "second"
	if got := atoll.EncodeContentIdentity(&content); !bytes.Equal(got, before) {
		t.Errorf("another Source changed the identity: %s, before %s", got, before)
	}
	if content.Items[0].SourceFingerprint != "second" {
		t.Errorf("ContentIdentity changed its argument")
	}
	content.Items[0].Hash = "other"
	if got := atoll.EncodeContentIdentity(&content); bytes.Equal(got, before) {
		t.Errorf("another object did not change the identity")
	}
}

// A key is of the group of its API version.
func TestKeysHaveTheGroupOfTheirAPIVersion(t *testing.T) {
	for group, versions := range map[string]map[string]bool{
		"apps": {"apps/v1": true, "v1": false, "apps.example/v1": false, "/v1": false, "apps": false},
		"":     {"v1": true, "/v1": true, "apps/v1": false},
	} {
		for version, want := range versions {
			if got := (atoll.ItemKey{Group: group, Kind: "Deployment"}).IsInGroupOf(version); got != want {
				t.Errorf("%q is of the group %q: %t", version, group, got)
			}
		}
	}
}
