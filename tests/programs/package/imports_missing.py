import package.nowhere
