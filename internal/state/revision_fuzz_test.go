package state

import (
	"bytes"
	"compress/gzip"
	"reflect"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A stored content is decoded or refused, and one that is decoded can be stored and decoded again.
func FuzzDecodeContent(f *testing.F) {
	f.Add(`{"items":[],"conflictResolution":"Fail","removal":"Delete"}`, `[{"key":{"kind":"ConfigMap","namespace":"shop","name":"a"},"apiVersion":"v1","uid":"1","object":{"data":{"k":"v"}},"hash":"h"}]`)
	f.Add(`{"items":[{"key":{"kind":"Secret","namespace":"shop","name":"s"},"object":null}],"rules":[{}],"tombstones":[{"key":{"kind":"Pod"},"uid":"2"}]}`, `[]`)
	f.Add(`null`, `null`)
	f.Add(`{"items":{}}`, `{}`)
	f.Add(`[`, `[[[[[[`)
	f.Fuzz(func(t *testing.T, inline, part string) {
		stored := [][]byte{[]byte(inline), []byte(part), gzipText(t, inline), gzipText(t, part)}
		if c, err := decodeContent(stored[0], stored[1:2]); err == nil {
			t.Fatalf("text that is not compressed is decoded as %+v", c)
		}
		c, err := decodeContent(stored[2], stored[3:])
		if err != nil {
			return
		}
		again, parts, err := encodeContent(c)
		if err != nil {
			t.Fatalf("a decoded content cannot be stored: %v", err)
		}
		var texts [][]byte
		for _, p := range parts {
			texts = append(texts, p.data)
		}
		back, err := decodeContent(again, texts)
		if err != nil {
			t.Fatalf("a stored content cannot be decoded: %v", err)
		}
		if !reflect.DeepEqual(keysOf(c), keysOf(back)) || len(c.Rules) != len(back.Rules) || len(c.Tombstones) != len(back.Tombstones) {
			t.Fatalf("%+v became %+v", c, back)
		}
	})
}

// keysOf counts the items of a content by key; two items with one key may change places.
func keysOf(c *atoll.Content) map[atoll.ItemKey]int {
	out := map[atoll.ItemKey]int{}
	for _, item := range c.Items {
		out[item.Key]++
	}
	return out
}

// gzipText compresses a text as it is.
func gzipText(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
