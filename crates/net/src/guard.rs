//! Address guard against server-side request forgery: which IP addresses are public.
//!
//! In: the address to connect to. Out: `None`, or the special range it belongs to. Only globally routable addresses pass; an IPv6
//! address that embeds an IPv4 address is checked as that IPv4 address. `dial` decides which hosts are exempt.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The special range of an address; `None` for a public address.
pub(crate) fn special_range(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => special_v4(v4),
            None => special_v6(v6),
        },
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = address.octets();
    Some(match (a, b, c, d) {
        (169, 254, 169, 254) | (169, 254, 170, 2) | (100, 100, 100, 200) | (168, 63, 129, 16) => {
            "a cloud metadata address"
        }
        (0, ..) => "an unspecified address",
        (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => "a private address",
        (127, ..) => "a loopback address",
        (169, 254, ..) => "a link-local address",
        (100, 64..=127, ..) => "a carrier-grade NAT address",
        (192, 0, 0, _) | (192, 88, 99, _) | (198, 18..=19, ..) => "a reserved address",
        (192, 0, 2, _) | (198, 51, 100, _) | (203, 0, 113, _) => "a documentation address",
        (224..=239, ..) => "a multicast address",
        (240..=255, ..) => "a reserved address",
        _ => return None,
    })
}

/// The IPv4 address that an IPv6 address embeds: mapped, compatible, translated (NAT64, also SIIT) or tunnelled (6to4, Teredo).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let from = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0..=1] => None,
        [0, 0, 0, 0, 0, 0xffff, a, b] | [0, 0, 0, 0, 0, 0, a, b] | [0, 0, 0, 0, 0xffff, 0, a, b] => Some(from(a, b)),
        [0x64, 0xff9b, 0, 0, 0, 0, a, b] => Some(from(a, b)),
        [0x2002, a, b, ..] => Some(from(a, b)),
        // Teredo stores the client address with all bits inverted.
        [0x2001, 0, _, _, _, _, a, b] => Some(from(!a, !b)),
        _ => None,
    }
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [a, b, ..] = address.segments();
    Some(match (a, b) {
        _ if address.is_loopback() => "a loopback address",
        _ if address.is_unspecified() => "an unspecified address",
        (0xfd00, 0xec2) => "a cloud metadata address",
        (0xfc00..=0xfdff, _) => "a private address",
        (0xfe80..=0xfebf, _) => "a link-local address",
        (0xfec0..=0xfeff, _) => "a private address",
        (0xff00..=0xffff, _) => "a multicast address",
        (0x64, 0xff9b) => "a local NAT64 address",
        (0x100, _) => "a discard-only address",
        (0x2001, 0xdb8) | (0x3fff, 0..=0xfff) => "a documentation address",
        (0x2001, 0..=0x1ff) => "a reserved address",
        (0x2000..=0x3fff, _) => return None,
        _ => "a reserved address",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(addresses: &[&str], passes: bool) {
        for text in addresses {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(special_range(address).is_none(), passes, "{text}: {:?}", special_range(address));
        }
    }

    #[test]
    fn only_addresses_of_the_open_internet_pass() {
        check(
            &["1.1.1.1", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.0.1.1"],
            true,
        );
        check(&["2606:4700::1111", "2a00:1450:4001::1", "2400::1", "2001:4860::8888"], true);
        check(
            &["0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "10.0.0.1", "172.16.0.1", "172.31.255.255"],
            false,
        );
        check(&["168.63.129.16", "::ffff:168.63.129.16"], false);
        check(&["192.168.0.1", "169.254.0.1", "169.254.169.254", "100.64.0.1", "100.127.255.255", "198.18.0.1"], false);
        check(
            &["192.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"],
            false,
        );
        check(&["::", "::1", "fc00::1", "fd12::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1"], false);
        check(&["100::1", "2001:db8::1", "3fff::1", "2001:2::1", "4000::1", "64:ff9b:1::1"], false);
    }

    #[test]
    fn an_address_inside_another_is_looked_at_like_one_that_is_not() {
        check(&["::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::", "::ffff:0:1.1.1.1"], true);
        check(&["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"], false);
        check(&["2002:7f00:1::", "2002:a00:1::1", "2001::80ff:fffe", "::ffff:0:127.0.0.1", "::ffff:100.64.0.1"], false);
    }
}
