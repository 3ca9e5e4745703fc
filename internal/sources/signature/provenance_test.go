package signature

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// signClearText returns a clear-signed text.
func signClearText(t testing.TB, e *openpgp.Entity, text string, config packet.Config) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := clearsign.Encode(&out, e.PrivateKey, &config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestProvenancesOfCharts(t *testing.T) {
	past := now.Add(-48 * time.Hour)
	config := packet.Config{Time: func() time.Time { return past.Add(time.Hour) }}
	key, other, expired := newEntity(t, past, 0), newEntity(t, past, 0), newEntity(t, past, 24*time.Hour)
	archive := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("archive")))
	text := "apiVersion: v2\nname: shop\ndescription: |\n  - a list\n  trailing \n...\nfiles:\n  shop-1.0.0.tgz: " + archive + "\n"
	good := signClearText(t, key, text, config)
	keys := mustParse(t, armorEntity(t, key, false))
	by := fmt.Sprintf("OpenPGP %X", key.PrimaryKey.Fingerprint)
	const invalid, untrusted = "SignatureInvalid", "SignerUntrusted"
	for name, c := range map[string]struct {
		keys    *TrustedKeys
		text    []byte
		archive string
		want    string
	}{
		"good":                  {keys, good, archive, by},
		"by lines of Windows":   {keys, bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")), archive, by},
		"another archive":       {keys, good, fmt.Sprintf("sha256:%x", sha256.Sum256(nil)), invalid},
		"no archive":            {keys, good, "", invalid},
		"another key":           {mustParse(t, armorEntity(t, other, false)), good, archive, untrusted},
		"an expired key":        {mustParse(t, armorEntity(t, expired, false)), signClearText(t, expired, text, config), archive, untrusted},
		"a changed text":        {keys, bytes.Replace(good, []byte("shop"), []byte("hush"), 1), archive, invalid},
		"another digest":        {keys, bytes.Replace(good, []byte(archive), []byte("sha256:hush"), 1), "sha256:hush", invalid},
		"no digests":            {keys, signClearText(t, key, "name: shop\n", config), archive, invalid},
		"digests that are none": {keys, signClearText(t, key, "name: shop\n...\nfiles: [hush]\n", config), archive, invalid},
		"an empty digest":       {keys, signClearText(t, key, "name: shop\n...\nfiles: {a: ''}\n", config), "", invalid},
		"text before it":        {keys, append([]byte("hush\n"), good...), archive, invalid},
		"text after it":         {keys, append(bytes.Clone(good), "\nhush"...), archive, invalid},
		"no signature":          {keys, []byte(beginClearText + "\n\nhush\n"), archive, invalid},
		"a page":                {keys, []byte("<html>hush"), archive, invalid},
		"nothing":               {keys, nil, archive, invalid},
		"a large one":           {keys, append(bytes.Clone(good), make([]byte, MaxProvenanceBytes)...), archive, invalid},
		"of bytes, not lines":   {keys, []byte(beginClearText + "\nHash: SHA256\n\n" + text + signOpenPGP(t, key, text, config)), archive, invalid},
	} {
		signer, err := c.keys.VerifyProvenance(c.text, c.archive, now)
		if got := reasonOf(t, signer, err); got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
	}
}

func FuzzProvenance(f *testing.F) {
	e, err := openpgp.NewEntity("Aiko", "", "a@example.com", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signClearText(f, e, "name: shop\n...\nfiles: {a: b}\n", packet.Config{}))
	f.Add([]byte(strings.Repeat(beginClearText+"\n\n", 2)))
	k := &TrustedKeys{openPGP: openpgp.EntityList{e}}
	f.Fuzz(func(t *testing.T, text []byte) {
		signer, err := k.VerifyProvenance(text, "sha256:a", time.Now())
		var refused *Refusal
		if signer != "" || !errors.As(err, &refused) {
			t.Errorf("verified by %q: %v", signer, err)
		}
	})
}
