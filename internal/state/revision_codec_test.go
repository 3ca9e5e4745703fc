package state

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// incompressibleItem is an item that no compression makes smaller.
func incompressibleItem(name string, bytes int) atoll.Item {
	raw, rng := make([]byte, bytes), rand.New(rand.NewPCG(uint64(bytes), 1))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	object := fmt.Sprintf(`{"binaryData":{"noise":%q}}`, base64.StdEncoding.EncodeToString(raw))
	return atoll.Item{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}, UID: name, Object: []byte(object)}
}

func TestStorable(t *testing.T) {
	small, large := incompressibleItem("small", 900_000), incompressibleItem("large", 1_020_000)
	if err := CheckItemSize(&small); err != nil {
		t.Error(err)
	}
	if err := CheckItemSize(&large); err == nil || !strings.Contains(err.Error(), "large is too large") || !strings.Contains(err.Error(), "1000000") {
		t.Errorf("%v", err)
	}
	if _, _, err := encodeContent(&atoll.Content{Items: []atoll.Item{large}}); err == nil {
		t.Error("what cannot be stored was encoded")
	}
}

// Items that can each be stored can be stored together, whatever parts their keys put them in.
func TestLargeItemsTogether(t *testing.T) {
	var c atoll.Content
	for i := range 12 {
		c.Items = append(c.Items, incompressibleItem(fmt.Sprint("n", i), 700_000))
	}
	inline, parts, err := encodeContent(&c)
	if err != nil {
		t.Fatal(err)
	}
	var raw [][]byte
	for _, p := range parts {
		if len(p.data) > maxPartBytes {
			t.Errorf("a part of %d bytes", len(p.data))
		}
		raw = append(raw, p.data)
	}
	back, err := decodeContent(inline, raw)
	if err != nil || len(back.Items) != 12 {
		t.Fatalf("%v %v", back, err)
	}
}
