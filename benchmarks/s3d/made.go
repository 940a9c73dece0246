package main

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc64"
	"html"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

// A site of so many objects that none of them is kept: names, sizes, versions and bytes follow from the number of
// an object. Keys are `d<7 digits>/f<9 digits>.bin`, a thousand to a folder; sizes 100 to 1,099 bytes.
type made struct {
	count   int
	changed int  // each changed-th object has another version and other bytes; 0: none
	mixed   bool // listings come in no order, and know no `start-after`
}

// The number of the object at a place of a listing.
func (site *made) at(place int) int {
	if !site.mixed {
		return place
	}
	step := 611953 % site.count
	for step < 2 || divisor(step, site.count) > 1 {
		step++
	}
	return (place*step + 7) % site.count
}

func divisor(one, two int) int {
	for two != 0 {
		one, two = two, one%two
	}
	return one
}

const (
	madeKey   = len("d0000000/f000000000.bin")
	madeTimes = 1700000000 // the objects' times, in seconds since the epoch: one a second, for a day
)

var crc64nvme = crc64.MakeTable(0x9a6c9329ac4bc9b5)

func (site *made) key(out []byte, number int) []byte {
	out = append(out, 'd')
	out = padded(out, number/1000, 7)
	out = append(out, "/f"...)
	out = padded(out, number, 9)
	return append(out, ".bin"...)
}

func padded(out []byte, value, digits int) []byte {
	at := len(out)
	for place := 0; place < digits; place++ {
		out = append(out, '0')
	}
	for place := at + digits - 1; value > 0 && place >= at; place-- {
		out[place] = byte('0' + value%10)
		value /= 10
	}
	return out
}

// The number of a key; -1 where no object has it.
func (site *made) number(key string) int {
	if len(key) != madeKey {
		return -1
	}
	number, err := strconv.Atoi(key[10:19])
	if err != nil || number >= site.count || string(site.key(nil, number)) != key {
		return -1
	}
	return number
}

func (site *made) size(number int) int64 { return int64(100 + number%1000) }

func (site *made) version(number int) int {
	if site.changed > 0 && number%site.changed == 0 {
		return 2
	}
	return 1
}

// A version that nobody takes for an MD5.
func (site *made) etag(out []byte, number int) []byte {
	out = append(out, '"')
	out = padded(out, number, 12)
	out = append(out, '.')
	out = strconv.AppendInt(out, int64(site.version(number)), 10)
	return append(out, "-1\""...)
}

func (site *made) content(number int) []byte {
	out := make([]byte, site.size(number)+8)
	seed := uint64(number)*0x9e3779b97f4a7c15 + uint64(site.version(number))
	for at := 0; at+8 <= len(out); at += 8 {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		binary.LittleEndian.PutUint64(out[at:], seed)
	}
	return out[:site.size(number)]
}

// The answer to a GET or HEAD of a key; nil where there is no such object.
func (site *made) object(key string) (*object, []byte) {
	number := site.number(key)
	if number < 0 {
		return nil, nil
	}
	content := site.content(number)
	var crc [8]byte
	binary.BigEndian.PutUint64(crc[:], crc64.Checksum(content, crc64nvme))
	etag := string(site.etag(nil, number))
	when := time.Unix(int64(madeTimes+number%86400), 0).UTC()
	return &object{
		key: key, etag: etag, size: site.size(number), crc: base64.StdEncoding.EncodeToString(crc[:]),
		fixed: "Last-Modified: " + when.Format("Mon, 02 Jan 2006 15:04:05 GMT") + "\r\nETag: " + etag +
			"\r\nAccept-Ranges: bytes\r\nContent-Type: binary/octet-stream\r\n",
	}, content
}

func (site *made) list(bucket string, query url.Values) string {
	if query.Has("location") {
		return "<LocationConstraint/>"
	}
	prefix, after := query.Get("prefix"), query.Get("start-after")
	if token := query.Get("continuation-token"); token != "" {
		after = token
	}
	most := 1000
	if asked, err := strconv.Atoi(query.Get("max-keys")); err == nil && asked < most {
		most = asked
	}
	at := sort.Search(site.count, func(at int) bool {
		key := string(site.key(nil, at))
		return key >= prefix && key > after
	})
	if site.mixed { // tokens are places; of the whole bucket alone
		at, _ = strconv.Atoi(query.Get("continuation-token"))
		prefix = ""
	}
	body := make([]byte, 0, 300*most+1000)
	count, last := 0, ""
	for at < site.count && count < most {
		number := site.at(at)
		body = append(body, "<Contents><Key>"...)
		begin := len(body)
		body = site.key(body, number)
		if !strings.HasPrefix(string(body[begin:]), prefix) {
			body = body[:begin-len("<Contents><Key>")]
			break
		}
		last = string(body[begin:])
		seconds := number % 86400
		body = append(body, "</Key><LastModified>2023-11-1"...)
		// 1700000000 is 22:13:20 of the 14th.
		of := seconds + 22*3600 + 13*60 + 20
		body = append(body, byte('4'+of/86400), 'T')
		of %= 86400
		body = append(padded(body, of/3600, 2), ':')
		body = append(padded(body, of/60%60, 2), ':')
		body = append(padded(body, of%60, 2), ".000Z</LastModified><ETag>&quot;"...)
		begin = len(body)
		body = site.etag(body, number)
		body = append(body[:begin], body[begin+1:len(body)-1]...)
		body = append(body, "&quot;</ETag><Size>"...)
		body = strconv.AppendInt(body, site.size(number), 10)
		body = append(body, "</Size><StorageClass>STANDARD</StorageClass></Contents>"...)
		at++
		count++
	}
	more := at < site.count && strings.HasPrefix(string(site.key(nil, at)), prefix)
	if site.mixed {
		more, last = at < site.count, strconv.Itoa(at)
	}
	var head strings.Builder
	head.Grow(len(body) + 600)
	head.WriteString("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>")
	head.WriteString(bucket + "</Name><Prefix>" + html.EscapeString(prefix) + "</Prefix><KeyCount>" + strconv.Itoa(count))
	head.WriteString("</KeyCount><MaxKeys>" + strconv.Itoa(most) + "</MaxKeys><IsTruncated>" + strconv.FormatBool(more) + "</IsTruncated>")
	if query.Get("encoding-type") == "url" {
		head.WriteString("<EncodingType>url</EncodingType>")
	}
	if more {
		head.WriteString("<NextContinuationToken>" + last + "</NextContinuationToken><NextMarker>" + last + "</NextMarker>")
	}
	head.Write(body)
	head.WriteString("</ListBucketResult>")
	return head.String()
}
