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
