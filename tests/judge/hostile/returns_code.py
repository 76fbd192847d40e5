"""A function, a generator, a module, a coroutine."""


async def double(x, scale=2.0):
    return x * 2
