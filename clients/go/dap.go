package shoal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"strings"
)

// Uploads to the leader of draft-ietf-ppm-dap-18: a report is split into a share for the leader and
// one for the helper, each encrypted for its receiver. src/shoal/protocol/dap explains the messages.

const (
	dapVersion = "dap-18"
	dapMedia   = "application/ppm-dap;message="
	dapSuite   = "\x00\x20\x00\x01\x00\x01\x00\x20" // X25519, HKDF-SHA256, AES-128-GCM, 32 bytes
	maxShared  = 3                                  // how often a report is split into shares
)

// dapStatus is what a leader says about a report, as a status that a collector would respond with.
var dapStatus = [12]int{400, 202, 202, 410, 412, 400, 400, 410, 400, 425, 425, 412}

func bigEndian(value uint64, size int) []byte {
	return binary.BigEndian.AppendUint64(nil, value)[8-size:]
}

// sized prefixes content with its length, encoded in the given number of bytes.
func sized(size int, content ...[]byte) []byte {
	whole := bytes.Join(content, nil)
	return append(bigEndian(uint64(len(whole)), size), whole...)
}

// fit drops a random part of the set bits if there are more than agreed.
func (a *aggregators) fit(row []byte) []byte {
	var places []int
	for place := 0; place < 8*len(row); place++ {
		if row[place/8]>>(place%8)&1 == 1 {
			places = append(places, place)
		}
	}
	for len(places) > a.MaxWeight {
		drawn := below(uint64(len(places)))
		row[places[drawn]/8] ^= 1 << (places[drawn] % 8)
		places = append(places[:drawn], places[drawn+1:]...)
	}
	return row
}

func (p *plan) dapName() string { return base64.RawURLEncoding.EncodeToString(p.idBytes[:]) }

func (p *plan) dapEndpoint(origin string) string { return origin + "/dap/" + p.dapName() + "/" }

func (p *plan) uploadAddress() string {
	return p.dapEndpoint(p.parties.Leader) + "tasks/" + p.dapName() + "/reports"
}

// task is the id and the configuration of a plan's task.
func (p *plan) task() []byte {
	size, weight := p.survey.bits, p.parties.MaxWeight
	chunk := bestChunkLength(size + bits.Len(uint(weight)))
	return bytes.Join([][]byte{
		p.idBytes[:],
		sized(1, []byte("shoal")),
		sized(2, []byte(p.dapEndpoint(p.parties.Leader))),
		sized(2, []byte(p.dapEndpoint(p.parties.Helper))),
		bigEndian(uint64(p.window), 8),
		bigEndian(p.parties.needed, 8),
		{2, 0, 0}, // batches are the leader's selection
		bigEndian(multihotID, 4),
		sized(2, bigEndian(uint64(size), 4), bigEndian(uint64(chunk), 4), bigEndian(uint64(weight), 8)),
		{0, 0},
	}, nil)
}

// keyOf finds the key of a window in an aggregator's list.
func keyOf(list []byte, window int64) ([]byte, error) {
	for at := 2; at+9 <= len(list); {
		end := at + 9 + int(binary.BigEndian.Uint16(list[at+7:]))
		if end > len(list) {
			break
		}
		if int64(list[at]) == window%256 && string(list[at+1:at+9]) == dapSuite {
			return list[at+9 : end], nil
		}
		at = end
	}
	return nil, errors.New("an aggregator has no key for this window")
}

// packShares is the upload of one report, for the lists of keys of leader and helper.
func (p *plan) packShares(id []byte, window int64, row []byte, lists [2][]byte) ([]byte, error) {
	set := make([]bool, p.survey.bits)
	for place := range set {
		set[place] = row[place/8]>>(place%8)&1 == 1
	}
	vdaf := multihot{maxWeight: p.parties.MaxWeight, shares: 2}
	context := append([]byte(dapVersion), p.idBytes[:]...)
	public, shares, err := vdaf.shard(context, set, id, draw(vdaf.randSize()))
	if err != nil {
		return nil, err
	}
	upload := bytes.Join([][]byte{id, bigEndian(uint64(window), 8), {0, 0}, sized(4, public)}, nil)
	about := append(p.task(), upload...)
	for place, share := range shares {
		key, err := keyOf(lists[place], window)
		if err != nil {
			return nil, err
		}
		info := append([]byte(dapVersion+" input share\x01"), byte(2+place))
		sent, encrypted, err := seal(key, info, about, append([]byte{0, 0}, sized(4, share)...))
		if err != nil {
			return nil, err
		}
		upload = bytes.Join([][]byte{upload, {byte(window)}, sized(2, sent), sized(4, encrypted)}, nil)
	}
	return upload, nil
}

// seal encrypts by HPKE (RFC 9180), base mode, with a key pair of its own; it returns the
// encapsulated key and the ciphertext.
func seal(public, info, about, content []byte) (sent, encrypted []byte, err error) {
	own := draw(32)
	if sent, err = x25519(own, append([]byte{9}, make([]byte, 31)...)); err != nil {
		return nil, nil, err
	}
	agreed, err := x25519(own, public)
	if err != nil {
		return nil, nil, err
	}
	const kem, suite = "HPKE-v1KEM\x00\x20", "HPKE-v1HPKE\x00\x20\x00\x01\x00\x01"
	none := make([]byte, 32) // an empty salt
	secret := mac(none, []byte(kem+"eae_prk"), agreed)
	secret = mac(secret, []byte("\x00\x20"+kem+"shared_secret"), sent, public, []byte{1})
	secret = mac(secret, []byte(suite+"secret"))
	context := bytes.Join([][]byte{
		{0}, mac(none, []byte(suite+"psk_id_hash")), mac(none, []byte(suite+"info_hash"), info), {1},
	}, nil)
	expand := func(size byte, label string) []byte {
		return mac(secret, []byte{0, size}, []byte(suite+label), context)[:size]
	}
	block, err := aes.NewCipher(expand(16, "key"))
	if err != nil {
		return nil, nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, nil, err
	}
	return sent, aead.Seal(nil, expand(12, "base_nonce"), content, about), nil
}

// mac is HMAC of the parts: LabeledExtract of RFC 9180, section 4, and, with the size before them and
// a 1 behind them, LabeledExpand to at most 32 bytes.
func mac(key []byte, parts ...[]byte) []byte {
	made := hmac.New(sha256.New, key)
	for _, part := range parts {
		made.Write(part)
	}
	return made.Sum(nil)
}

// share fetches the keys of both aggregators and splits a report; the caller stores it.
func (w *worker) share(agreed *plan, one *report) error {
	var lists [2][]byte
	for place, origin := range []string{agreed.parties.Leader, agreed.parties.Helper} {
		reply, content, err := ask(http.MethodGet, agreed.dapEndpoint(origin)+"hpke_config", "", nil)
		if err != nil {
			return errors.New("no response")
		}
		if reply.StatusCode != http.StatusOK {
			return fmt.Errorf("%s responded %d instead of its keys", origin, reply.StatusCode)
		}
		lists[place] = content
	}
	shares, err := agreed.packShares(one.ID, one.Window, one.Row, lists)
	one.Shares = shares
	return err
}

// uploadStatus is the status of an upload of one report; 202 if the leader has it.
func uploadStatus(reply *http.Response, content []byte) int {
	if reply.StatusCode < 200 || reply.StatusCode > 299 {
		return reply.StatusCode
	}
	if len(content) == 0 {
		return http.StatusAccepted
	}
	media := strings.ReplaceAll(reply.Header.Get("Content-Type"), " ", "")
	if media != dapMedia+"upload-errors" {
		return reply.StatusCode // it may be a hotel's login page
	}
	if len(content) != 17 || int(content[16]) >= len(dapStatus) {
		return http.StatusBadRequest
	}
	return dapStatus[content[16]]
}
